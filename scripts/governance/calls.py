"""Calls that the library and the program may not make, and the fence around raw memory.

This reads the sources, so it answers at once and names the line. The stages `symbols` (what the
linked library really calls) and `check` (clang's -Wunsafe-buffer-usage) judge the same promises on
what the compiler made.
"""
import re

from tree import CPP, Finding, code_of, line_of

RULES = {
    "calls.process": "The library and the program never end the process on the way: no abort, exit,"
                     " terminate, raise, assert or std::unreachable in src and apps, and no __trap in"
                     " a kernel, after which the GPU is lost; return an Error.",
    "calls.throw": "Nothing is thrown: no throw, try, .value() or std::stoi in src and apps; use"
                   " VOLTA_TRY and the parsers of base/text.h.",
    "calls.access": "No .at() of a container, no std::get and no std::any_cast in src and apps: they"
                    " throw; use find(), std::get_if or an index that was checked.",
    "calls.regex": "No std::regex in src and apps: it overflows the stack on long input.",
    "calls.random": "No rand() and no generator with a state in src and apps: numbers come from base/rng.h"
                    " and a seed.",
    "calls.new": "No raw new or delete in src and apps, and no malloc outside the fence: an object goes into a"
                 " smart pointer or a Buffer in the same expression.",
    "calls.allowed": "Every line of allowed_calls.txt is still needed and gives a reason.",
    "fence.cast": "reinterpret_cast only in src/kernels, src/device, src/base/memory* and"
                  " src/tensor/buffer*.",
    "fence.intrinsic": "Intrinsics, SIMD types and assembly only in src/kernels (src/device for"
                       " the clock).",
    "fence.cuda": "Kernels for GPUs, their memory and their launches only in src/kernels/cuda.",
    "fence.launch": "What launches a kernel allocates nothing and waits for nothing, because a CUDA"
                    " graph records it: src/device/cuda_* does both.",
    "fence.mapping": "mmap, munmap and mprotect only in src/base/memory*.",
    "fence.safety": "A file with reinterpret_cast says in a SAFETY: comment what makes it right.",
}

ALLOWED = "scripts/governance/allowed_calls.txt"
_FENCE = r"src/(kernels/.*|device/.*|base/memory[^/]*|tensor/buffer\.[^/]*)"
# (rule, files that may, pattern, what was found)
PATTERNS = [
    ("calls.process", r"$^", r"(?<![.>\w])(?:std::|::)?(?:abort|_?exit|_Exit|quick_exit|terminate"
     r"|assert|__trap|__builtin_(?:trap|unreachable|abort))\s*\(|\bstd::(?:abort|_?exit|_Exit"
     r"|quick_exit|terminate|unreachable)\b|(?<![.>\w])(?:std::|::)raise\b|(?<![.>\w:])raise\s*\(\s*SIG",
     "this ends the process; return an Error"),
    ("calls.throw", r"$^", r"\bthrow\b|\btry\s*\{|\.value\(\)|\bstd::sto(?:i|l|ll|ul|ull|f|d|ld)\b",
     "this throws; return an Error, or use VOLTA_TRY"),
    # In kernels at() is that of Volta's own views of rows, which checks nothing.
    ("calls.access", r"src/kernels/.*", r"(?:\.|->)at\s*\(", "a container throws here; use find(), or an"
     " index that was checked"),
    ("calls.access", r"$^", r"\bstd::get\s*<(?!\d+>)", "a variant throws here; use std::get_if"),
    ("calls.access", r"$^", r"\bstd::any_cast\s*<[^;(]*>\s*\((?!\s*&)", "this throws; give it a pointer"),
    ("calls.regex", r"$^", r"\bstd::(?:basic_)?[cws]*regex\w*", "std::regex overflows the stack"),
    ("calls.random", r"$^", r"(?<![.>\w])(?:std::|::)?s?rand\s*\(|\bstd::(?:mt19937\w*|random_device"
     r"|default_random_engine)\b", "use base/rng.h with a seed"),
    ("calls.new", r"$^", r"(?<![\w.])new\s+\(?[A-Za-z_:]|\bdelete\b(?!\s*;)\s*(?:\[\s*\]\s*)?\w",
     "use a smart pointer, a container or a Buffer"),
    ("calls.new", _FENCE, r"(?<![.>\w:])(?:std::|::)?(?:malloc|calloc|realloc)\s*\("
     r"|(?<!\w)(?:std)?::free\s*\(", "use a smart pointer, a container or a Buffer"),
    ("fence.cast", _FENCE, r"\breinterpret_cast\b", "use std::span, values or std::bit_cast"),
    ("fence.intrinsic", r"src/(kernels|device)/.*",
     r"\b_mm\d*_\w+|\b__m(?:128|256|512)\w*|\b__builtin_ia32_\w+|\basm\b", "move it into a kernel"),
    ("fence.cuda", r"src/kernels/cuda/.*", r"\b__(?:global|shared|constant)__\b|<<<",
     "move it into src/kernels/cuda"),
    ("fence.launch", r"(?!src/kernels/cuda/).*",
     r"\bcuda(?:Malloc|Free|HostAlloc|Memcpy(?=\s*\()|\w*Synchronize)\w*\s*\(",
     "take the workspace of the op, and leave waiting to the device"),
    ("fence.mapping", r"src/base/memory[^/]*", r"(?<![.>\w])(?:::)?(?:mmap|munmap|mprotect)\s*\(",
     "use MappedFile"),
]
# A private constructor cannot be called by make_unique: the pointer is owned in the same expression.
_OWNED = re.compile(r"(?:unique_ptr|shared_ptr)\s*(?:<[^;{}]*>(?:\s+\w+)?)?\s*\(\s*$")


def allowed(tree):
    """{(path, rule): line number} of the exceptions, and findings about the list itself."""
    entries, findings = {}, []
    for number, line in enumerate(tree.texts.get(ALLOWED, "").splitlines(), 1):
        words = line.split(None, 2)
        if not words or line.startswith("#"):
            continue
        if len(words) < 3:
            findings.append(Finding(f"{ALLOWED}:{number}", "calls.allowed",
                                    "a line is: FILE RULE REASON"))
        else:
            entries[words[0], words[1]] = number
    return entries, findings


def findings_in(path, text):
    """The findings in one file of src or apps, exceptions not considered."""
    code = code_of(text)
    for rule, where, pattern, problem in PATTERNS:
        if re.fullmatch(where, path):
            continue
        for match in re.finditer(pattern, code):
            if rule == "calls.new" and _OWNED.search(code, 0, match.start()):
                continue
            yield Finding(f"{path}:{line_of(code, match.start())}", rule,
                          f"`{match[0].strip()}`: {problem}")
    if "reinterpret_cast" in code and "SAFETY" not in text:
        yield Finding(path, "fence.safety",
                      "say in a `// SAFETY:` comment which invariant makes the cast right")


def check(tree):
    exceptions, findings = allowed(tree)
    used = set()
    for path, text in tree.select(r"(src|apps)/" + CPP):
        for finding in findings_in(path, text):
            if (path, finding.rule) in exceptions:
                used.add((path, finding.rule))
            else:
                findings.append(finding)
    for entry in sorted(set(exceptions) - used):
        findings.append(Finding(f"{ALLOWED}:{exceptions[entry]}", "calls.allowed",
                                f"{entry[0]} has no {entry[1]} any more; delete the line"))
    return findings
