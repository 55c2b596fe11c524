"""Tests of the JavaScript sandbox, against the real helper process."""
