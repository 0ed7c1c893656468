"""Our subclasses of TensorFlow's classes use no private name of their bases."""

import ast
import importlib
import inspect
import pkgutil
import re
import textwrap

import cifar10

_PRIVATE = re.compile(r"_[A-Za-z]\w*")


def private_names(cls: type) -> set[str]:
    """What a class defines or says of `self`, as far as it is private."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    names = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "cls", "super()")
    }
    return {name for name in names | set(vars(cls)) if _PRIVATE.fullmatch(name)} - {"_abc_impl"}


def taken(cls: type) -> set[str]:
    """The private names of its bases that are TensorFlow's which a class uses, or hides."""
    theirs: set[str] = set()
    for base in cls.__mro__:
        if base.__module__.split(".")[0] in ("tensorflow", "tensorflow_estimator"):
            theirs |= private_names(base)
    return private_names(cls) & theirs


def our_subclasses() -> list[type]:
    """Those outside of tf_internals."""
    found = {}
    for module in pkgutil.walk_packages(cifar10.__path__, "cifar10."):
        if module.name != "cifar10.tf_internals":
            for found_class in vars(importlib.import_module(module.name)).values():
                if inspect.isclass(found_class) and found_class.__module__ == module.name:
                    found[f"{found_class.__module__}.{found_class.__qualname__}"] = found_class
    return [
        found_class
        for found_class in found.values()
        if any(base.__module__.startswith("tensorflow") for base in found_class.__mro__)
    ]


def test_no_subclass_uses_a_private_name_of_tensorflows():
    names = {found_class.__qualname__: taken(found_class) for found_class in our_subclasses()}
    assert {"WholeVector", "ChiefHook", "Saving"} <= set(names)
    assert {name: private for name, private in names.items() if private} == {}
