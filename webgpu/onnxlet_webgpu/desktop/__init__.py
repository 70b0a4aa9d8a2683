"""What only desktops need: left out of the wheel that pages install."""
