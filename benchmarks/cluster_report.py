"""The tables of docs/scale.md, made from results/cluster.json alone."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from apportion.study import superclass_tables
from apportion.study.superclass_tables import write_into

Record = dict[str, Any]
LIMIT = 300  # rounds after which a simulation was given up
ROWS, FEATURES, CLASSES, PARTS, THREADS = 10**9, 100, 10, 256, 8  # of the projection


def table(head: list[str], lines: Iterable[Iterable[Any]]) -> str:
    return superclass_tables.table(head, [[str(cell) for cell in line] for line in lines])


def write_json(path: Path, results: dict[str, Any]) -> None:
    partial = path.with_name(f".{path.name}.part")
    partial.write_text(json.dumps(results, indent=1, default=float) + "\n")
    partial.replace(path)


def write_page(page: Path, results: dict[str, Any]) -> None:
    """Every table whose records are there."""
    made = {"machines": machines, "kills": kills, "bytes": wire, "rounds": rounds}
    for name, make in made.items():
        if name in results:
            write_into(page, name, make(results[name]) + "\n")
    if {"bytes", "rounds"} <= set(results):
        write_into(page, "projection", projection(results["rounds"], results["bytes"]) + "\n")


def machines(records: list[Record]) -> str:
    head = ["data", "loss", "n", "d", "k", "C", "rounds", "gap", "objective above the optimum"]
    lines = []
    for r in records:
        shape = f"{r['n']:,}", f"{r['d']:,}", r["k"], f"{r['C']:g}"
        lines.append(
            (r["kind"], r["loss"], *shape, r["rounds"], f"{r['gap']:.1e}", f"{max(r['excess'], 0):.1e}")
        )
    return table(head, lines)


def kills(records: list[Record]) -> str:
    good = [r for r in records if r["gap"] <= 1e-3]
    widest = max(abs(r["difference"]) for r in records)
    counts = [r["rounds"] for r in records]
    lines = [
        [i, f"{100 * r['moment']:.0f} %", r["rounds"], f"{r['gap']:.1e}", f"{r['difference']:+.1e}"]
        for i, r in enumerate(records, 1)
    ]
    head = ["trial", "killed after", "rounds", "gap", "objective, less the undisturbed one's"]
    return (
        f"**{len(good)} of {len(records)}** fits ended at a gap of 1e-3 or less, after {min(counts)} to {max(counts)} rounds; "
        f"their objectives are within {widest:.1e} of that of the undisturbed fit.\n\n" + table(head, lines)
    )


def wire(records: list[Record]) -> str:
    head = ["workers", "n", "d", "k", "16 m (d + 1)", "received", "sent"]
    lines = []
    for r in records:
        measured = f"{r['payload']:,}", f"{r['received']:,.0f}", f"{r['sent']:,.0f}"
        lines.append((r["workers"], f"{r['n']:,}", r["d"], r["k"], *measured))
    return table(head, lines)


def rounds(records: list[Record]) -> str:
    base = records[0]
    dense = [r for r in records if r["kind"] == "dense" and not r["ordered"]]
    ordered = [r for r in records if r["ordered"]]

    def like(record: Record, *free: str) -> bool:
        return all(record[key] == base[key] for key in ("n", "d", "k", "C") if key not in free)

    def count(record: Record) -> Any:
        return record["rounds"] if record["gap"] <= 1e-3 else f"more than {LIMIT}"

    def added(record: Record) -> Any:
        return record["added"] if record["added"] <= LIMIT else f"more than {LIMIT}"

    def block(title: str, setting: str, head: list[str], lines: Iterable[list[Any]]) -> str:
        return f"**{title}** ({setting})\n\n" + table(head, list(lines))

    usual = f"n = {base['n']:,}, d = {base['d']}, k = {base['k']}, C = {base['C']:g}"
    teams = [r for r in dense if like(r) and r["P"] == 256]
    fixed = sorted(
        (
            r
            for r in dense
            if like(r, "n", "C")
            and abs(r["n"] * r["C"] - 640) < 1
            and r["P"] in (16, 256)
            and r["teams"] == r["P"]
        ),
        key=lambda r: (r["P"], r["n"]),
    )
    sixteen = [r for r in dense if r["P"] == 16]
    wide = sorted((r for r in sixteen if like(r, "d")), key=lambda r: r["d"])
    many = sorted((r for r in sixteen if like(r, "k")), key=lambda r: r["k"])
    hard = sorted((r for r in sixteen if like(r, "C")), key=lambda r: r["C"])
    text = [r for r in records if r["kind"] == "sparse"]
    alike = {r["P"]: count(r) for r in dense if like(r) and r["teams"] == r["P"]}
    parts = [
        block(
            "Parts",
            usual,
            ["P", "rounds", "rounds of CoCoA+"],
            [[r["P"], count(r), added(r)] for r in dense if "added" in r],
        ),
        block(
            "Teams of parts",
            f"{usual}, P = 256",
            ["teams", "rounds"],
            [[r["teams"], count(r)] for r in teams],
        ),
        block(
            "The price of slack",
            "P = 16",
            ["n C", "C", "rounds"],
            [[f"{r['n'] * r['C']:,.0f}", f"{r['C']:g}", count(r)] for r in hard],
        ),
        block(
            "Rows",
            "n C = 640",
            ["P", "n", "rows of a part", "rounds"],
            [[r["P"], f"{r['n']:,}", f"{r['n'] // r['P']:,}", count(r)] for r in fixed],
        ),
        block(
            "Rows sorted by class",
            usual,
            ["P", "rounds", "rounds of mixed rows"],
            [[r["P"], count(r), alike[r["P"]]] for r in ordered],
        ),
        block("Features", "P = 16", ["d", "rounds"], [[r["d"], count(r)] for r in wide]),
        block("Classes", "P = 16", ["k", "rounds"], [[r["k"], count(r)] for r in many]),
    ]
    if text:
        t = text[0]
        setting = f"n = {t['n']:,}, d = {t['d']:,}, k = {t['k']}, C = {t['C']:g}"
        lines = [[r["P"], count(r), added(r)] for r in text]
        parts.append(block("Sparse", setting, ["P", "rounds", "rounds of CoCoA+"], lines))
    return "\n\n".join(parts)


def projection(simulated: list[Record], counted: list[Record]) -> str:
    """10^9 rows: bytes by the formula and the worst overhead seen, CPU time by that of a row in the simulation."""
    like = next(r for r in simulated if (r["d"], r["k"], r["P"]) == (FEATURES, CLASSES, PARTS))
    beyond = max(max(r["received"], r["sent"]) - r["payload"] for r in counted)
    size = 16 * CLASSES * (FEATURES + 1) + beyond  # bytes of a part in a round, each way
    by_price = sorted(
        (
            r
            for r in simulated
            if (r["n"], r["d"], r["k"], r["P"], r["kind"], r["ordered"])
            == (64_000, 50, 5, 16, "dense", False)
        ),
        key=lambda r: r["C"],
    )
    seconds = ROWS / PARTS * like["row_seconds"] + like["client_seconds"]
    lines = [
        ["rows, features, classes", f"{ROWS:,} x {FEATURES}, {CLASSES}"],
        ["data in double precision", f"{ROWS * FEATURES * 8 / 2**30:,.0f} GiB"],
        ["alpha, kept by the parts", f"{ROWS * CLASSES * 8 / 2**30:,.0f} GiB"],
        ["parts (threads), workers of 8 threads", f"{PARTS}, {PARTS // THREADS}"],
        ["memory of a worker", f"{ROWS * (FEATURES + CLASSES) * 8 * THREADS / PARTS / 2**30:,.0f} GiB"],
        ["a worker receives and sends in a round, each", f"{size * THREADS / 2**10:,.0f} KiB"],
        ["the client receives and sends in a round, each", f"{size * PARTS / 2**20:,.1f} MiB"],
        ["CPU time of a row in a round (simulated, d = 100, k = 10)", f"{1e6 * like['row_seconds']:.1f} us"],
        ["CPU time of the client in a round", f"{like['client_seconds']:.2f} s"],
        ["a round", f"{seconds:.0f} s"],
    ]
    first = table(["", ""], lines)
    head = ["n C", "C at 10^9 rows", "rounds", "a fit", "a worker receives in all"]
    lines = []
    for r in by_price:
        minutes, received = r["rounds"] * seconds / 60, r["rounds"] * size * THREADS / 2**20
        price = f"{r['n'] * r['C']:,.0f}", f"{r['n'] * r['C'] / ROWS:.1e}"
        lines.append((*price, r["rounds"], f"{minutes:.0f} min", f"{received:.0f} MiB"))
    return first + "\n\n" + table(head, lines)
