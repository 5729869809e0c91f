"""The Alzheimer world (ADCB), in numbers: docs/adcb.md."""
