"""Python programs whose names do not end in .py, as modules for their tests."""
import importlib.machinery
import importlib.util
import sys


def load_script(path, name):
    """The module `name` of a program. Worker processes find it by this name, too."""
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.modules[name] = module
    loader.exec_module(module)
    return module
