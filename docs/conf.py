"""The pages: `make docs` builds them into docs/_build, without the network and with warnings as errors.

Pages are Markdown that reads well where it lies too. What stands in docs/gallery and docs/generated is made: the one by
running examples/plot_*.py, the other from the docstrings.
"""

import re
import warnings

import apportion

project = "apportion"
author = "The Apportion developers"
copyright = author
version = release = apportion.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]
suppress_warnings = ["myst.header"]  # parts of pages that commands write begin at a level of their own
default_role = "literal"  # `this` in docstrings is code

html_theme = "furo"
html_title = f"apportion {version}"
html_show_sphinx = False
myst_heading_anchors = 3

autosummary_generate = True
autosummary_ignore_module_all = False  # public is what __all__ names
autodoc_typehints = "none"  # the docstrings say what may be given
numpydoc_show_class_members = False  # the template of a class lists its methods
numpydoc_xref_param_type = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"^(?!plot_)",  # the other scripts there draw or measure for pages of their own
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "remove_config_comments": True,
    "write_computation_times": False,
}
warnings.filterwarnings("ignore", message="Matplotlib is currently using agg")


def plain_text(app, what, name, obj, options, lines):
    """Docstrings are plain text: |w| is a norm and dual_gap_ a name; what a module sets off by spaces stays as it stands."""
    if what == "module":
        blocks = "\n".join(lines).split("\n\n")
        as_is = [re.search(r"^ ", block, re.MULTILINE) is not None for block in blocks]
        blocks = [
            ".. code-block:: text\n\n" + re.sub(r"^", "   ", block, flags=re.MULTILINE)
            if literal
            else escaped(block)
            for block, literal in zip(blocks, as_is, strict=True)
        ]
        lines[:] = [*"\n\n".join(blocks).splitlines(), ""]
    else:
        lines[:] = [line if line.lstrip().startswith((">>>", "...")) else escaped(line) for line in lines]


def escaped(text):
    """Without the marks of reStructuredText that formulas and names hold; `code` and the names before " : " stay."""
    parts = re.split(r"(`+[^`]*`+|^[\w, ]+ : )", text, flags=re.MULTILINE)
    parts[::2] = [re.sub(r"(?<=\w)_(?!\w)|\|", r"\\\g<0>", part) for part in parts[::2]]
    return "".join(parts)


def setup(app):
    app.connect("autodoc-process-docstring", plain_text, priority=400)  # before numpydoc makes its sections
