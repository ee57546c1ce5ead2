"""Types of command line arguments that several scripts share."""
import argparse
import re


def pattern(text):
    """A regular expression; what is none is wrong usage."""
    try:
        return re.compile(text)
    except re.error as problem:
        raise argparse.ArgumentTypeError(f"'{text}' is no regular expression: {problem}") from None
