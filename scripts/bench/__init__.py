"""Benchmarks: what is measured (`cases`), how numbers become tables (`report`), and one module for each host.

`scripts/bench_web.py` compares onnxlet with onnxruntime-web in a page of headless Chromium, `scripts/bench_native.py`
with onnxruntime on this machine.
"""
