#!/usr/bin/env python3
"""Tests bench/compare_losses on small files of metrics."""
import json
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "bench" / "compare_losses"
SVG = "{http://www.w3.org/2000/svg}"


class CompareLosses(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def run_of(self, name, losses, first=1):
        path = self.folder / f"{name}.jsonl"
        lines = [{"step": first + i, "loss": loss} for i, loss in enumerate(losses)]
        lines.append({"step": first + len(losses) - 1, "val_loss": 9.0})
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return f"{name}={path}"

    def compare(self, *words):
        return subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True,
                              check=False)

    def test_differences_and_the_picture(self):
        picture = self.folder / "losses.svg"
        done = self.compare(self.run_of("f32", [4.0, 3.0, 2.0]),
                            self.run_of("b<16", [4.5, 3.0, 2.25, 1.0]), "--svg", picture)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, "b<16 and f32, 3 steps: 0.2500 apart in the mean, 0.5000 at "
                                      "most (step 1)\n")
        root = ElementTree.parse(picture).getroot()
        lines = [[tuple(map(float, point.split(","))) for point in line.get("points").split()]
                 for line in root.findall(SVG + "polyline")]
        self.assertEqual([len(line) for line in lines], [3, 4])
        self.assertEqual(lines[0][1], lines[1][1])  # The same step and loss.
        self.assertGreater(lines[0][0][1], lines[1][0][1])  # A lower loss is drawn lower.
        self.assertIn("b<16", [text.text for text in root.findall(SVG + "text")])

    def test_only_the_first_steps(self):
        done = self.compare(self.run_of("a", [1.0, 2.0]), self.run_of("b", [1.0, 5.0]), "--steps",
                            "1")
        self.assertIn("1 steps: 0.0000 apart", done.stdout)

    def test_wrong_words_are_refused(self):
        one = self.run_of("a", [1.0])
        self.assertEqual(self.compare("a").returncode, 2)
        self.assertEqual(self.compare("a=/nowhere").returncode, 2)
        self.assertEqual(self.compare(one, self.run_of("b", [1.0], first=7)).returncode, 2)
        self.assertEqual(self.compare(self.run_of("c", [])).returncode, 2)


if __name__ == "__main__":
    unittest.main()
