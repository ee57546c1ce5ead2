"""The tier of a change: what it touches, read from paths and from the changed lines themselves.

docs/governance/tiers.md says what each tier needs; policy.py enforces it.
"""
import re

# The version of a file format, or what says that a file has the format. Another constant whose name
# ends with Format is one only if it is a number: the others describe a line of text or a type.
VERSION = (r"\bk\w*Version\b\s*=|\bkFormat\b\s*=|\bk\w+Format\b\s*=\s*(?:$|(?:\w+\s*\+\s*)?\d)"
           r"|\"format_version\"")

NAMES = {
    0: "documents and comments",
    1: "tests, benchmarks, tools, examples",
    2: "library and command-line code",
    3: "kernels, memory-unsafe code, file formats, public API and command line",
    4: "dependencies, CI, governance",
}

# The first pattern that matches a path gives the tier that the path alone asks for, and why.
PATHS = [
    (r"tests/governance/golden/.*", 3, "what users rely on: a help page or a key of JSON"),
    (r"docs/governance/.*|(tests|scripts)/governance/.*|(SECURITY|CONTRIBUTING|AGENTS|CLAUDE)\.md|LICENSE"
     r"|\.cursorrules|\.ralphy/.*",
     4, "governance"),
    (r"\.github/.*|\.ci/.*|Makefile|CMakePresets\.json|cmake/Volta(Options|ModuleFlags)\.cmake"
     r"|\.clang-(tidy|format)"
     r"|scripts/(bootstrap|lint|format|release|sbom|check_.*|(allowed_throw|exported)_symbols\.txt"
     r"|bench-guard|bench-baseline|benching/.*|fuzz_smoke|soak|run_bench|gate_in_rootfs"
     r"|gpu_check|compare_bits|compare_speed|measure)"
     # The campaigns, but for their own tests. What small models compute has a rule of its own.
     r"|tests/(attacks|faults)/(?!\w+_test\.py$).*|tests/support/program\.py|tests/golden_guard/run", 4, "a gate or what it is made of"),
    (r"cmake/VoltaDependencies\.cmake|containers/.*|Containerfile", 4, "dependencies"),
    (r"src/kernels/.*", 3, "a kernel"),
    (r"src/(device/.*|base/memory[^/]*|tensor/buffer\.[^/]*)", 3, "inside the fence of raw memory"),
    (r"src/(formats/(gguf/.*|safetensors\..*|adapter\..*)|train/checkpoint\..*|tuner/tuning_cache\..*)",
     3, "a file format"),
    (r"src/.*\.h", 3, "a header: most are public and installed"),
    (r"apps/volta/options\..*", 3, "the command line"),
    (r"(src|apps|cmake)/.*|CMakeLists\.txt", 2, "code of the program"),
    (r"(tests|bench|scripts|examples)/.*", 1, "tests, benchmarks, tools or examples"),
    (r".*", 0, "a document"),
]

# What a changed line of code says: (files, pattern, tier, why).
CONTENT = [
    (r"(src|apps)/.*", r"\b_mm\d*_\w+|\b__m(128|256|512)\w*|\breinterpret_cast\b|\basm\b", 3,
     "an intrinsic or a reinterpret_cast"),
    (r"(src|apps)/.*", r"\b__(global|shared|constant)__\b|<<<", 3, "a kernel of a GPU"),
    (r"(src|apps)/.*", r"\bSAFETY:", 3, "a SAFETY: comment"),
    (r"src/.*", VERSION, 3, "the version of a file format"),
    (r"apps/.*", r"\badd_(option|flag|subcommand)\w*\s*\(", 3, "an option or a command"),
    (r".*(CMakeLists\.txt|\.cmake)", r"\b(find_package|pkg_check_modules|FetchContent\w*"
     r"|ExternalProject\w*)\b", 4, "a dependency"),
    (r".*(CMakeLists\.txt|\.cmake)", r"\bvolta_fence\b|unsafe-buffer-usage|\bVOLTA_UNSAFE_BUFFERS\b", 4,
     "a flag of the fence"),
]
_COMMENT = re.compile(r"\s*(//.*)?")


def only_comments(change):
    """Whether every changed line of a C++ file is blank or a comment that is no promise."""
    if not re.search(r"\.(h|cc|cu|cuh)$", change.path) or change.created or change.deleted:
        return False
    return all(_COMMENT.fullmatch(line.text) and "SAFETY:" not in line.text
               for line in change.added + change.removed)


def tier_of_path(path):
    return next((tier, why) for pattern, tier, why in PATHS if re.fullmatch(pattern, path))


def tier_of_file(change):
    """(tier, why) of one FileChange."""
    tier, why = max(tier_of_path(change.path), tier_of_path(change.old_path))
    if tier < 4 and change.hunks and only_comments(change):
        tier, why = 0, "comments only"
    for files, pattern, content_tier, content_why in CONTENT:
        if content_tier > tier and re.fullmatch(files, change.path):
            if any(re.search(pattern, line.text) for line in change.added + change.removed
                   if not _COMMENT.fullmatch(line.text) or "SAFETY:" in line.text):
                tier, why = content_tier, content_why
    return tier, why


def tier_of(changes):
    """(tier, [(path, tier, why)]) of a diff; the tier is that of its highest file."""
    files = [(change.path, *tier_of_file(change)) for change in changes]
    return max((tier for _, tier, _ in files), default=0), files
