#!/usr/bin/env python3
"""Tests bench/scaling: the arithmetic and the drawing of its report, the files that it makes, and a
whole run with small programs that stand for Volta and the machine."""
import json
import struct
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path[:0] = [str(BENCH), str(BENCH.parent / "tests" / "support")]
from load_script import load_script  # noqa: E402
import scaling_report as report  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"

# A machine whose arithmetic gains everything from threads, and whose memory doubles once.
MACHINE = """#!/usr/bin/env python3
import json, sys
threads = int(sys.argv[sys.argv.index("--threads") + 1])
print(json.dumps({"memory": {"read_gb_per_s": 10.0 * min(threads, 2)}, "peaks": {
    "f32": {"gops": 100.0 * threads}, "bf16": {"gops": 200.0 * threads}, "int8": {"gops": 0}}}))
"""
MATMUL = """#!/usr/bin/env python3
import json, sys
words = sys.argv[1:]
threads = int(words[words.index("--threads") + 1])
assert words[words.index("--sizes") + 1] == "1024"
print(json.dumps({"products": [{"contenders": [
    {"name": "volta packed", "gops": 50.0 * threads}, {"name": "volta", "gops": 40.0},
    {"name": "onednn", "gops": 1000.0}]}]}))
"""
VOLTA = """#!/usr/bin/env python3
import json, os, pathlib, sys
words = sys.argv[1:]
threads = int(words[words.index("--threads") + 1])
if words[0] == "train":
    assert os.path.getsize(words[words.index("--data") + 1]) > 8 * 257 * 8
    out = pathlib.Path(words[words.index("--out") + 1])
    out.mkdir()
    lines = [1.0, 1.0] + [30.0 * threads] * 4
    (out / "metrics.jsonl").write_text("".join('{"tokens_per_s": %f}\\n' % x for x in lines))
else:
    assert words[:2] == ["bench", "model"]
    assert (pathlib.Path(words[2]) / "config.json").exists()
    print(json.dumps({"prompts": [{"prefill_tokens_per_s": 300.0 * threads ** 0.5,
                                   "decode_tokens_per_s": 15.0 * min(threads, 2)}]}))
"""


def machine():
    return {"f32": report.Series("f32", "Gop/s", ["f32"], {1: 100.0, 2: 200.0, 4: 300.0}),
            "memory": report.Series("memory", "GB/s", ["memory"], {1: 10.0, 2: 15.0, 4: 40.0})}


class Arithmetic(unittest.TestCase):
    def test_speedups_and_shares(self):
        work = report.Series("work", "x", ["f32"], {1: 2.0, 2: 4.0, 4: 4.5})
        self.assertEqual(work.speedup(1), 1.0)
        self.assertEqual(work.speedup(4), 2.25)
        self.assertIsNone(work.speedup(8))
        self.assertEqual(report.share(work, machine(), 2), 1.0)
        self.assertEqual(report.share(work, machine(), 4), 0.75)

    def test_the_bound_that_gains_least_counts(self):
        work = report.Series("work", "x", ["f32", "memory"], {1: 1.0, 2: 1.2, 4: 2.4})
        self.assertEqual(report.machine_speedup(work, machine(), 2), 1.5)
        self.assertEqual(report.machine_speedup(work, machine(), 4), 3.0)
        self.assertAlmostEqual(report.share(work, machine(), 4), 0.8)

    def test_speedups_begin_with_the_fewest_threads_measured(self):
        work = report.Series("work", "x", ["f32"], {2: 2.0, 4: 3.0})
        self.assertEqual(work.speedup(4), 1.5)
        self.assertEqual(report.machine_speedup(work, machine(), 4), 1.5)
        self.assertEqual(report.share(work, machine(), 4), 1.0)

    def test_what_is_unknown_stays_unknown(self):
        work = report.Series("work", "x", ["int8"], {1: 1.0, 2: 2.0})
        self.assertIsNone(report.share(work, machine(), 2))
        stopped = report.Series("stopped", "x", ["f32"], {1: 0.0, 2: 2.0})
        self.assertIsNone(stopped.speedup(2))
        self.assertIsNone(report.share(stopped, machine(), 2))
        self.assertIsNone(report.Series("none", "x", ["f32"], {}).speedup(1))

    def test_json(self):
        work = report.Series("work", "x", ["f32"], {1: 2.0, 4: 3.0})
        told = json.loads(json.dumps(report.to_json(machine(), [work])))
        self.assertEqual(told["work"][0]["points"][1],
                         {"threads": 4, "rate": 3.0, "speedup": 1.5, "machine_speedup": 3.0,
                          "share": 0.5})
        self.assertEqual([line["name"] for line in told["machine"]], ["f32", "memory"])

    def test_table(self):
        work = report.Series("work", "tokens/s", ["f32"], {1: 2.0, 4: 3.0})
        lines = report.text(machine(), [work]).splitlines()
        self.assertEqual([line.split(",")[0] for line in lines[2:]], ["f32", "memory", "work"])
        self.assertIn("3.0 (1.50; 0.50)", lines[-1])
        self.assertIn("4 threads", lines[1])
        self.assertEqual(report.text({}, []), "nothing was measured\n")


class Drawing(unittest.TestCase):
    def draw(self, work):
        return ElementTree.fromstring(report.svg(machine(), work))

    def test_lines_are_where_the_numbers_are(self):
        work = report.Series("a <b> & c", "x", ["f32"], {1: 1.0, 2: 2.0, 4: 4.0})
        root = self.draw([work])
        lines = root.findall(SVG + "polyline")
        self.assertEqual(len(lines), 3)
        self.assertEqual([line.get("stroke-dasharray") is not None for line in lines],
                         [True, True, False])
        points = [tuple(map(float, point.split(",")))
                  for point in lines[2].get("points").split()]
        # Doublings are equally far apart, to the right and upwards.
        self.assertAlmostEqual(points[1][0] - points[0][0], points[2][0] - points[1][0], delta=0.2)
        self.assertAlmostEqual(points[1][1] - points[0][1], points[2][1] - points[1][1], delta=0.2)
        self.assertLess(points[2][1], points[1][1])
        self.assertGreater(points[2][0], points[1][0])
        # A speed-up equal to the threads ends at the top of the plot and on the grey line.
        self.assertAlmostEqual(points[2][1], report.TOP, delta=0.1)
        names = [text.text for text in root.findall(SVG + "text")]
        self.assertIn("a <b> & c: 4.0x", names)
        self.assertIn("f32: 3.0x", names)

    def test_everything_lies_in_the_picture(self):
        work = [report.Series(f"work {i}", "x", ["f32"], {1: 1.0, 2: 0.25, 16: 40.0})
                for i in range(9)]
        root = self.draw(work)
        height = float(root.get("height"))
        self.assertEqual(len(root.findall(SVG + "polyline")), 11)
        for circle in root.findall(SVG + "circle"):
            self.assertTrue(report.LEFT <= float(circle.get("cx")) <= report.WIDTH)
            self.assertTrue(report.TOP - 1 <= float(circle.get("cy")) <= report.TOP +
                            report.HEIGHT + 1)
        for text in root.findall(SVG + "text"):
            self.assertLessEqual(float(text.get("y")), height)

    def test_one_number_of_threads(self):
        work = report.Series("work", "x", ["f32"], {1: 1.0})
        ElementTree.fromstring(report.svg({}, [work]))
        ElementTree.fromstring(report.svg({}, []))


class Files(unittest.TestCase):
    def test_the_model_is_whole(self):
        scaling = load_script(BENCH / "scaling", "scaling")
        config = {**scaling.LLAMA, "hidden_size": 64, "intermediate_size": 96,
                  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                  "vocab_size": 50}
        with tempfile.TemporaryDirectory() as folder:
            scaling.write_model(folder, config)
            data = (Path(folder) / "model.safetensors").read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        tensors = json.loads(data[8:8 + length])
        self.assertEqual(len(tensors), 2 * 9 + 3)
        self.assertEqual(tensors["model.layers.1.self_attn.k_proj.weight"]["shape"], [32, 64])
        ends = sorted(tensor["data_offsets"] for tensor in tensors.values())
        self.assertEqual([begin for begin, _ in ends], [0] + [end for _, end in ends[:-1]])
        self.assertEqual(len(data), 8 + length + ends[-1][1])
        values = [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0]
                  for i in range(8 + length, len(data), 2)]
        self.assertTrue(all(0.0078 < abs(value) < 0.0313 for value in values))
        self.assertLess(abs(sum(values)) / len(values), 1e-3)


class Run(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.programs = []
        for name, text in (("machine", MACHINE), ("matmul", MATMUL), ("volta", VOLTA)):
            path = self.folder / name
            path.write_text(text)
            path.chmod(0o755)
            self.programs += ["--" + name, path]

    def scaling(self, *options):
        return subprocess.run([sys.executable, BENCH / "scaling", "--no-build", *self.programs,
                               *options], capture_output=True, text=True, check=False)

    def test_a_whole_run(self):
        picture = self.folder / "scaling.svg"
        done = self.scaling("--threads", "4,1", "--types", "f32", "--dtypes", "f32,bf16",
                            "--weights", "bf16", "--model", self.model(), "--svg", picture,
                            "--output", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        told = json.loads(done.stdout)
        self.assertEqual([line["name"] for line in told["machine"]], ["f32", "bf16", "memory"])
        shares = {line["name"]: line["points"][1]["share"] for line in told["work"]}
        self.assertEqual(shares, {"products, f32": 1.0, "training, f32": 2.0,
                                  "training, bf16": 2.0, "prompts, bf16": 1.0,
                                  "decoding, bf16": 1.0})
        ElementTree.parse(picture)

    def test_a_part_as_text(self):
        done = self.scaling("--threads", "1,2", "--only", "products", "--types", "bf16")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("100.0 (2.00; 1.00)", done.stdout)
        self.assertNotIn("training", done.stdout)

    def test_wrong_words_and_programs_that_fail(self):
        self.assertEqual(self.scaling("--only", "soup").returncode, 2)
        self.assertEqual(self.scaling("--threads", "0").returncode, 2)
        self.assertEqual(self.scaling("--steps", "2").returncode, 2)
        (self.folder / "matmul").write_text("#!/bin/sh\necho no >&2\nexit 5\n")
        done = self.scaling("--threads", "1", "--only", "products")
        self.assertEqual(done.returncode, 1)
        self.assertIn("ended with 5", done.stderr)

    def model(self):
        model = self.folder / "model"
        model.mkdir()
        (model / "config.json").write_text("{}")
        return model


if __name__ == "__main__":
    unittest.main()
