"""Which node of an ONNX model is wrong on a target, and the proof."""

__version__ = "0.1.0"
