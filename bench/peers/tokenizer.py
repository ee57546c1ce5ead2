#!/usr/bin/env python3
"""Volta's tokenizer against Hugging Face tokenizers, in one run: the same tokenizer.json, the same
chunks of the same text, one thread each, pass by pass in turn; the ids must be equal.

    pip install tokenizers==0.23.3
    bench/peers/tokenizer.py BENCH_TOKENIZER TOKENIZER TEXT [PASSES]

BENCH_TOKENIZER is build/release/bench/bench_tokenizer, TOKENIZER a tokenizer.json. Prints JSON:
medians and extremes of the passes, and the ratio of the medians. The peer is timed twice: encode()
a chunk, and encode_batch_fast() of all chunks, its quickest way.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

CHUNK = 4096  # Bytes, to the end of the line: as in bench/tokenizer.cc.


def chunks_of(data):
    chunks, begin = [], 0
    while begin < len(data):
        line = data.find(b"\n", min(begin + CHUNK, len(data)))
        end = len(data) if line < 0 else line + 1
        chunks.append(data[begin:end].decode())
        begin = end
    return chunks


def summary(seconds, size):
    return {"median_s": statistics.median(seconds), "min_s": min(seconds), "max_s": max(seconds),
            "mb_per_s": size / statistics.median(seconds) / 1e6}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", metavar="BENCH_TOKENIZER")
    parser.add_argument("tokenizer", metavar="TOKENIZER")
    parser.add_argument("text", metavar="TEXT")
    parser.add_argument("passes", metavar="PASSES", type=int, nargs="?", default=9)
    return parser.parse_args()


def import_peer():
    """The peer, with one thread: it reads these variables when it is imported."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["RAYON_NUM_THREADS"] = "1"
    try:
        import tokenizers
    except ImportError:
        sys.exit("tokenizer.py: install the peer first: pip install tokenizers==0.23.3")
    return tokenizers


def main():
    arguments = parse_arguments()
    program, path, text = arguments.program, arguments.tokenizer, arguments.text
    passes = arguments.passes
    tokenizers = import_peer()
    with open(text, "rb") as file:
        data = file.read()
    chunks = chunks_of(data)
    peer = tokenizers.Tokenizer.from_file(path)
    volta = subprocess.Popen([program, "--chunks", path, text], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True, bufsize=1)
    times = {"volta": [], "encode": [], "encode_batch_fast": []}
    for turn in range(passes + 1):  # The first pass warms the caches of both and checks the ids.
        volta.stdin.write("\n")
        seconds, count, checksum = volta.stdout.readline().split()
        begin = time.perf_counter()
        encodings = [peer.encode(chunk) for chunk in chunks]
        middle = time.perf_counter()
        peer.encode_batch_fast(chunks)
        end = time.perf_counter()
        if turn == 0:
            total = 0
            for encoding in encodings:
                for token in encoding.ids:
                    total = (total * 31 + token) % 2**64
            assert int(checksum) == total, "the ids differ"
            continue
        times["volta"].append(float(seconds))
        times["encode"].append(middle - begin)
        times["encode_batch_fast"].append(end - middle)
    volta.stdin.close()
    volta.wait()
    result = {name: summary(seconds, len(data)) for name, seconds in times.items()}
    base = result["volta"]["median_s"]
    result["ratio_encode"] = result["encode"]["median_s"] / base
    result["ratio_encode_batch_fast"] = result["encode_batch_fast"]["median_s"] / base
    result.update(tokens=int(count), bytes=len(data), chunks=len(chunks), passes=passes,
                  peer="tokenizers " + tokenizers.__version__)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
