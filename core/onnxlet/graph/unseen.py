"""Rows of attention that see nothing."""

UNSEEN_NAN, UNSEEN_ZERO, NAN_ZERO = range(3)
"""What becomes of a row of scores that are all -inf: NaN, as softmax has it; weights of 0; weights of 0 there and
wherever else softmax gives NaN."""
