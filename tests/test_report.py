"""The report: its figures against slow twins, and the page itself in a real browser."""

import shutil
from functools import cache

import numpy as np
import pytest
from scipy import stats
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from apportion import ApportionedSVC, class_sensitivity, cost_savings, expected_cost
from apportion.show import write_model_report, write_report
from apportion.show.report import make_page
from apportion.show.summary import UNIT, cost_curve, cost_interval, hold, share_interval, summarize
from apportion.show.wording import amount, figures, fixed, grouped, number

HOSTILE = [
    "<img src=x onerror=window.hacked=1>",
    "</script><script>window.hacked=2</script>",
    "' onfocus=window.hacked=3 autofocus \" <b>bold</b> &lt; $title \u2028 \u202e rtl",
    "W" * 90,
]
MATRIX = [[0, 4, 2.5, 3], [1, 0, 1, 2], [6, 8, 0, 1], [3, 3, 0.1, 0]]


def draw(n, shares, seed=0, sharpness=1.2):
    """Classes drawn by their shares, and probabilities that are right in the mean and often wrong in the case."""
    rng = np.random.default_rng(seed)
    k = len(shares)
    y = rng.choice(k, n, p=shares)
    F = rng.normal(size=(n, k)) + sharpness * np.eye(k)[y]
    P = np.exp(sharpness * F) * shares
    return y, P / P.sum(axis=1, keepdims=True)


def settings(kind):
    """Arguments of write_report for one of the pages."""
    if kind == "two":
        y, P = draw(285, [0.63, 0.37])
        P[:90] = P[:90].round(1)  # many cases whose decisions cost the same at some costs
        names = np.array(["benign", "malignant"])
        return {"y": names[y], "probabilities": P, "classes": names, "costs": {"malignant": 10, "benign": 1}}
    if kind == "four":
        y, P = draw(400, [0.4, 0.3, 0.2, 0.1], seed=1)
        return {"y": y, "probabilities": P, "classes": np.arange(4), "costs": "balanced", "unit": "EUR"}
    if kind == "matrix":
        y, P = draw(300, [0.4, 0.3, 0.2, 0.1], seed=2)
        names = np.array(["healthy", "inflamed", "pre-cancerous", "cancer"])
        return {"y": names[y], "probabilities": P, "classes": names, "costs": MATRIX}
    if kind == "sampled":
        y, P = draw(5000, [0.9, 0.08, 0.02], seed=3)
        return {"y": y, "probabilities": P, "classes": np.arange(3), "costs": [1, 5, 30.25], "max_rows": 600}
    if kind == "large":
        y, P = draw(100_000, [0.4, 0.3, 0.1, 0.1, 0.05, 0.02, 0.01, 0.01, 0.009, 0.001], seed=5)
        return {"y": y, "probabilities": P, "classes": np.arange(10), "costs": np.arange(1, 11)}
    if kind == "hostile":  # the last class has no cases, and a class costs what no level of the sliders is
        y, P = draw(120, [0.4, 0.3, 0.3, 0.0], seed=4)
        texts = {
            "title": HOSTILE[0],
            "data_name": HOSTILE[1],
            "model_text": "\n".join(HOSTILE),
            "unit": HOSTILE[0],
        }
        costs = dict(zip(HOSTILE, [7 / 3, 1, 2, 5], strict=True))
        return {"y": np.array(HOSTILE)[y], "probabilities": P, "classes": HOSTILE, "costs": costs, **texts}
    raise KeyError(kind)


KINDS = ("two", "four", "matrix", "sampled", "hostile")


@cache
def page_of(kind):
    """The page as Python sees it, and its first costs."""
    args = {"unit": "", "max_rows": 20_000, **settings(kind)}
    page, costs = make_page(
        *(args[name] for name in ("y", "probabilities", "classes", "costs", "unit", "max_rows"))
    )
    return page, costs.array


# ---------------------------------------------------------------- the figures


@pytest.mark.parametrize("costs", [[1, 5, 2.5], [[0, 1, 4], [8, 0, 2], [2, 2, 0]]], ids=["vector", "matrix"])
def test_figures_are_those_of_the_metrics(costs):
    y, P = draw(500, [0.5, 0.3, 0.2])
    cases = hold(y, P, np.arange(3))
    found = summarize(cases, np.array(costs, dtype=float))
    matrix = (
        np.array(costs, dtype=float) if np.ndim(costs) == 2 else np.outer(costs, np.ones(3)) * (1 - np.eye(3))
    )
    rounded, true = cases.P / UNIT, np.sort(y)
    decided, likeliest = (rounded @ matrix).argmin(axis=1), rounded.argmax(axis=1)
    assert (rounded @ matrix).argmin(axis=1).tolist() == (P[np.argsort(y, kind="stable")] @ matrix).argmin(
        axis=1
    ).tolist()
    cost = expected_cost(true, decided, costs=costs)
    assert found.cost.mean == pytest.approx(cost)
    assert found.equal_cost.mean == pytest.approx(expected_cost(true, likeliest, costs=costs))
    assert 1 - found.cost.mean / found.constant_cost.mean == pytest.approx(
        cost_savings(true, decided, costs=costs)
    )
    assert found.constant == (np.bincount(true) @ matrix).argmin()
    assert [s.mean for s in found.sensitivity] == pytest.approx(class_sensitivity(true, decided))
    assert found.equal_sensitivity == pytest.approx(class_sensitivity(true, likeliest))
    assert found.predictive == pytest.approx([np.mean(true[decided == j] == j) for j in range(3)])
    # the interval of the savings is the normal interval of the paired differences
    saved = matrix[true, likeliest] - matrix[true, decided]
    reach = 1.959964 * saved.std() / np.sqrt(len(saved))
    assert found.saved_on_equal.mean == pytest.approx(saved.mean())
    assert found.saved_on_equal.high - found.saved_on_equal.low == pytest.approx(2 * reach)
    # with many errors the interval of the cost is close to the normal one
    paid = matrix[true, decided]
    reach = 1.96 * paid.std() / np.sqrt(len(paid))
    assert found.cost.low == pytest.approx(cost - reach, abs=0.3 * reach)
    assert found.cost.high == pytest.approx(cost + reach, abs=0.4 * reach)


def test_intervals_against_scipy():
    for found, cases in ((0, 40), (1, 40), (37, 40), (40, 40)):
        ours, exact = (
            share_interval(found, cases),
            stats.binomtest(found, cases).proportion_ci(method="wilson"),
        )
        assert (ours.low, ours.high) == pytest.approx((exact.low, exact.high), abs=1e-12)
    n = 1000
    for errors in (0, 1, 3, 10, 100):  # errors of cost 1: the exact interval of a Poisson mean
        ours = cost_interval(errors / n, errors / n**2, 1 / n)
        low = stats.chi2.ppf(0.025, 2 * errors) / 2 if errors else 0.0
        assert ours.low * n == pytest.approx(low, rel=0.02, abs=0.03)
        assert ours.high * n == pytest.approx(stats.chi2.ppf(0.975, 2 * errors + 2) / 2, rel=0.02)


@pytest.mark.parametrize("max_rows", [20_000, 90], ids=["all cases", "a sample"])
def test_intervals_cover(max_rows):
    """Of 200 draws of 300 cases, at least 92 % of the intervals hold the true cost; a rule that is fixed in advance decides."""
    shares, right = np.array([0.9, 0.1]), np.array([0.97, 0.9])
    costs = np.array([1.0, 8.0])
    truth = float((shares * (1 - right) * costs).sum())
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(200):
        y = rng.choice(2, 300, p=shares)
        decided = np.where(rng.random(300) < right[y], y, 1 - y)
        P = np.eye(2)[decided]
        cost = summarize(hold(y, P, [0, 1], max_rows), costs).cost
        held += cost.low <= truth <= cost.high
    assert held >= 184


def test_intervals_where_most_cases_err():
    """The best single decision is a rare, dear class: the few are those that cost nothing, and no case costs more than 2."""
    n = 300
    for right in (1, 3, 10, 100):
        y, costs = np.repeat([0, 1], [right, n - right]), np.array([1e4, 2.0])
        found = summarize(hold(y, np.full((n, 2), 0.5), [0, 1]), costs)
        ours, exact = found.constant_cost, stats.binomtest(n - right, n).proportion_ci()
        assert found.constant == 0 and ours.mean == pytest.approx(2 * (n - right) / n)
        assert (ours.low, ours.high) == pytest.approx((2 * exact.low, 2 * exact.high), abs=0.02)
        assert 0 <= ours.low <= ours.mean <= ours.high <= 2
    # every case errs, whose decision is a class that none of them is of
    costs = np.array([[0, 9, 2], [9, 0, 2], [9, 9, 0.0]])
    ours = summarize(hold(y, np.full((n, 3), 1 / 3), [0, 1, 2]), costs).constant_cost
    exact = stats.binomtest(n, n).proportion_ci()
    assert (ours.low, ours.high) == pytest.approx(
        (2 * exact.low, 2.0), abs=0.02
    ) and ours.low < 2 * exact.low + 0.001
    few = summarize(hold([0, 1], np.eye(2), [0, 1]), np.array([2.0, 2.0])).cost
    assert (few.low, few.mean, few.high) == (
        0,
        0,
        2,
    )  # no case of two errs; the gamma interval alone would end above 2


def test_a_sample_keeps_rare_classes_whole_and_is_scaled_up():
    y, P = draw(30_000, [0.9, 0.09, 0.01])
    cases = hold(y, P, np.arange(3), 3000)
    n_rare = int((y == 2).sum())
    assert cases.totals.tolist() == np.bincount(y).tolist()
    assert cases.kept.tolist() == [(3000 - n_rare) // 2 + (3000 - n_rare) % 2, (3000 - n_rare) // 2, n_rare]
    whole, part = (
        summarize(c, np.array([1.0, 5.0, 40.0])) for c in (hold(y, P, np.arange(3), 30_000), cases)
    )
    assert part.sensitivity[2] == whole.sensitivity[2]
    assert part.cost.mean == pytest.approx(whole.cost.mean, abs=4 * (part.cost.high - part.cost.low) / 3.92)
    assert part.cost.high - part.cost.low > whole.cost.high - whole.cost.low
    texts = figures(*page_and_costs(y, P, 3000), 2).texts
    assert sum(int(texts[f"n.0.{j}"].replace(",", "")) for j in range(3)) == pytest.approx(
        (y == 0).sum(), abs=2
    )


def page_and_costs(y, P, max_rows):
    page, costs = make_page(y, P, np.arange(3), [1, 5, 40], "", max_rows)
    return page, costs.array


def test_probabilities_become_whole_numbers_that_sum_up():
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.full(7, 0.1), 2000)
    P[0], P[1] = np.eye(7)[3], 1 / 7
    cases = hold(np.zeros(2000, dtype=int), P, np.arange(7))
    assert (cases.P.sum(axis=1) == UNIT).all() and (cases.P >= 0).all() and (cases.P % 1 == 0).all()
    assert np.abs(cases.P / UNIT - P).max() <= 1 / UNIT


def test_curve_passes_through_the_cost():
    y, P = draw(400, [0.5, 0.3, 0.2])
    cases, costs = hold(y, P, np.arange(3)), np.array([1.0, 4.0, 2.0])
    curve = cost_curve(cases, costs, 1, [0.5, 4.0, 100.0])
    for x, model, equal, constant in zip(curve.x, curve.model, curve.equal, curve.constant, strict=True):
        there = summarize(cases, np.array([1.0, x, 2.0]))
        assert (model, equal, constant) == pytest.approx(
            (there.cost.mean, there.equal_cost.mean, there.constant_cost.mean)
        )
    matrix = np.array([[0, 1, 4], [8, 0, 2], [2, 2, 0]], dtype=float)
    doubled = matrix * np.array([1, 2, 1])[:, None]
    assert cost_curve(cases, matrix, 1, [2.0]).model == pytest.approx(summarize(cases, doubled).cost.mean)


def test_the_dot_of_a_cost_beyond_the_levels_stays_in_the_drawing():
    page, costs = make_page([0, 0, 1, 1], np.eye(2)[[0, 0, 1, 0]], [0, 1], [1, 10], "", 100)
    beyond = np.array([1.0, 1000 * page.levels[-1]])
    assert figures(page, beyond, 1).shapes["dot"] == {"cx": "100.00%", "cy": "0.00%"}
    assert figures(page, costs.array, 1).shapes["dot"]["cy"] != "0.00%"


@pytest.mark.parametrize(
    ("x", "as_amount", "as_number"),
    [
        (1234.5, "1,235", "1,235"),
        (43.94, "44", "43.94"),
        (0.5, "0.50", "0.5"),
        (0.0439, "0.044", "0.0439"),
        (0.0, "0", "0"),
        (-66.5, "−67", "−66.5"),  # noqa: RUF001
        (10.0, "10", "10"),
        (1e9, "1,000,000,000", "1,000,000,000"),
    ],
)
def test_digits(x, as_amount, as_number):
    assert (amount(x), number(x)) == (as_amount, as_number)


def test_halves_are_rounded_up_and_digits_grouped():
    assert [fixed(x, 0) for x in (0.5, 1.5, 2.5)] == ["1", "2", "3"]
    assert (fixed(0.125, 2), grouped(fixed(-1234567.25, 1))) == ("0.13", "−1,234,567.3")  # noqa: RUF001


# ---------------------------------------------------------------- the file

GOOD = {
    "y": [0, 1, 1],
    "probabilities": [[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]],
    "classes": [0, 1],
    "costs": [1, 2],
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": []}, "y has shape"),
        ({"y": [0, 1, 7]}, "y holds 7"),
        ({"probabilities": [[0.9, 0.1]]}, "probabilities has shape"),
        ({"probabilities": [[0.9, 0.1], [0.5, np.nan], [0, 1]]}, r"probabilities\[1\]"),
        ({"probabilities": [[0.9, 0.1], [0.5, 0.6], [0, 1]]}, r"probabilities\[1\]"),
        ({"probabilities": [[0.9, 0.1], [1.5, -0.5], [0, 1]]}, r"probabilities\[1\]"),
        ({"classes": [0]}, "classes="),
        ({"classes": [0, 0]}, "names a class twice"),
        ({"costs": [1, -2]}, "cost of class 1"),
        ({"costs": [1, 1e12]}, "costs holds 1e\\+12"),
        ({"costs": [1e-9, 1]}, "costs holds 1e-09"),
        ({"title": 3}, "title=3"),
        ({"max_rows": 1}, "max_rows=1"),
        ({"max_rows": True}, "max_rows=True"),
    ],
)
def test_bad_input_is_named(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        write_report(tmp_path / "report.html", **{**GOOD, **change})
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = write_report(tmp_path / "report.html", **GOOD)
    before = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_report(path, **{**GOOD, "title": "new"})
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_report_of_a_model(tmp_path):
    X, y = load_iris(return_X_y=True)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[::2], y[::2])
    with pytest.raises(ValueError, match="has no costs_"):
        write_model_report(tmp_path / "a.html", model, X[1::2], y[1::2])
    path = write_model_report(tmp_path / "a.html", model, X[1::2], y[1::2], costs=[1, 2, 3], title="iris")
    assert "LogisticRegression" in path.read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="predict_proba"):
        write_model_report(tmp_path / "b.html", ApportionedSVC([1, 2, 3]).fit(X, y), X, y)
    calibrated = CalibratedClassifierCV(ApportionedSVC([1, 2, 3]), ensemble=False).fit(X[::2], y[::2])
    calibrated.costs_ = np.array([1.0, 2.0, 3.0])
    assert write_model_report(tmp_path / "b.html", calibrated, X[1::2], y[1::2]).stat().st_size < 60_000


# ---------------------------------------------------------------- the page, in Chromium

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
READ = """() => {
  const texts = {}, shapes = {};
  for (const node of document.querySelectorAll("[data-t]")) {
    const name = node.dataset.t;
    if (name in texts && texts[name] !== node.textContent) throw new Error(name + " is told in two ways");
    texts[name] = node.textContent;
  }
  for (const node of document.querySelectorAll("[data-s]")) {
    const held = {};
    for (const { name, value } of node.attributes)
      if (/^(d|x1|x2|y|y1|y2|cx|cy|width|visibility|data-level)$/.test(name)) held[name] = value;
    shapes[node.dataset.s] = held;
  }
  return [texts, shapes];
}"""


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    # not skipped: a page that no browser has shown is not tested
    assert path, (
        "these tests need Chromium: run them by `make test`, or install it (apt-get install chromium)"
    )
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser, tmp_path):
    """Opens a report; afterwards there must have been no message, no error and no request but for the file itself."""
    contexts, seen = [], []

    def opener(kind, **options):
        path = write_report(tmp_path / f"{kind}.html", **settings(kind))
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: seen.append(message.text))
        page.on("pageerror", lambda error: seen.append(str(error)))
        page.on("request", lambda request: request.url == path.as_uri() or seen.append(request.url))
        page.goto(path.as_uri())
        return page

    opener.seen = seen
    yield opener
    for context in contexts:
        context.close()
    assert seen == []


def assert_shows(page, kind, costs, shown=None):
    """Every text and shape of the page is what Python computes."""
    known, first = page_of(kind)
    costs = np.asarray(costs, dtype=float)
    shown = int((first if first.ndim == 1 else first.max(axis=1)).argmax()) if shown is None else shown
    expected = figures(known, costs, shown)
    texts, shapes = page.evaluate(READ)
    assert texts == expected.texts
    assert set(shapes) == set(expected.shapes)
    for name, attributes in expected.shapes.items():
        assert attributes.items() <= shapes[name].items(), name


@pytest.mark.parametrize("kind", KINDS)
def test_page_loads_and_shows_the_figures(open_page, kind):
    page = open_page(kind)
    assert_shows(page, kind, page_of(kind)[1])
    page.evaluate("document.documentElement.classList.remove('script')")  # hides what needs scripts
    shown = page.inner_text("main")
    still = open_page(kind, java_script_enabled=False)  # a preview without scripts shows the figures too
    assert still.inner_text("main").replace(still.inner_text("noscript"), "").split() == shown.split()


@pytest.mark.parametrize("kind", ["two", "four", "sampled", "hostile"])
def test_sliders_by_keyboard(open_page, kind):
    page = open_page(kind)
    known, costs = page_of(kind)
    costs, last = costs.copy(), len(known.levels) - 1
    for c in range(len(costs)):
        at = known.levels.index(costs[c])
        slider = page.locator(f"#cost-{c}")
        assert "costs" in page.locator(f"label[for=cost-{c}]").inner_text()
        slider.focus()
        for key, to in (("ArrowRight", at + 1), ("End", last), ("ArrowLeft", last - 1), ("Home", 0)):
            page.keyboard.press(key)
            costs[c] = known.levels[to]
            assert_shows(page, kind, costs)
            assert slider.get_attribute("aria-valuetext") == number(costs[c])
            assert page.locator(f"input[type=number][data-y='{c}']").input_value() == number(
                costs[c]
            ).replace(",", "")
        page.keyboard.press("PageUp")
        costs[c] = known.levels[int(slider.input_value())]
        assert_shows(page, kind, costs)
    page.locator("#reset").click()
    assert_shows(page, kind, page_of(kind)[1])
    assert page.locator("#reset").is_disabled()


def test_large_data_are_sampled_and_stay_live(open_page, tmp_path):
    page = open_page("large")
    assert (tmp_path / "large.html").stat().st_size < 1.5e6
    assert "holds 20,000 of the 100,000 cases" in page.locator(".notes").inner_text()
    page.locator("#cost-9").focus()
    page.keyboard.press("Home")
    assert_shows(page, "large", [*range(1, 10), page_of("large")[0].levels[0]])


def test_typed_costs_and_another_curve(open_page):
    page = open_page("two")
    field = page.locator("input[type=number][data-y='1']")
    field.fill("37.5")
    assert_shows(page, "two", [1, 37.5])
    assert page.locator("#cost-1").get_attribute("aria-valuetext") == "37.5"
    for bad in ("-1", "0", "", "1e30"):
        field.fill(bad)
        assert field.get_attribute("aria-invalid") == "true"
        assert "A cost must be a number" in page.locator(".wrong").inner_text()
        assert_shows(page, "two", [1, 37.5])
    field.fill("123456.7")
    assert page.locator(".wrong").is_hidden()
    assert_shows(page, "two", [1, 123456.7])
    other = page.locator("input[type=number][data-y='0']")
    other.fill("-3")  # refused, and gone once another field is right: its mark goes too
    field.fill("123456.7")
    assert other.input_value() == "1" and field.input_value() == "123456.7"
    assert other.get_attribute("aria-invalid") is None and page.locator(".wrong").is_hidden()
    assert_shows(page, "two", [1, 123456.7])
    page.select_option("#pick", "0")
    assert_shows(page, "two", [1, 123456.7], shown=0)


def test_cost_matrix(open_page):
    page = open_page("matrix")
    costs = np.array(MATRIX, dtype=float)
    for y, j, cost in ((0, 1, 40), (2, 3, 0), (3, 0, 0.75)):
        page.locator(f"input[data-y='{y}'][data-j='{j}']").fill(str(cost))
        costs[y, j] = cost
        assert_shows(page, "matrix", costs)
    page.locator("input[data-y='1'][data-j='3']").focus()
    page.keyboard.press("ArrowUp")
    costs[1, 3] = 3
    assert_shows(page, "matrix", costs)
    for c in range(4):
        page.select_option("#pick", str(c))
        assert_shows(page, "matrix", costs, shown=c)
    for j in (0, 2, 3):
        page.locator(f"input[data-y='1'][data-j='{j}']").fill("0")
    assert "must cost something" in page.locator(".wrong").inner_text()
    costs[1, [0, 2]] = 0  # the last zero was refused
    assert_shows(page, "matrix", costs, shown=3)


def test_hostile_text_stays_text(open_page):
    page = open_page("hostile")
    page.locator("#cost-1").focus()
    page.keyboard.press("End")
    page.select_option("#pick", "2")
    assert page.evaluate("window.hacked") is None
    assert page.locator("img, b b").count() == 0 and page.locator("script").count() == 2
    assert page.locator("h1").inner_text() == page.title() == HOSTILE[0]
    assert HOSTILE[1] in page.locator(".about").inner_text()
    for label in (" ".join(text.split()) for text in HOSTILE):
        assert page.locator("tbody th bdi").filter(has_text=label).count() >= 1
        assert page.locator("option").filter(has_text=label).count() == 1
        assert label.split()[0] in page.locator("pre").inner_text()


def test_page_may_ask_nothing_of_the_network(open_page):
    page = open_page("two")
    refused = page.evaluate(
        """() => new Promise((done) => {
          document.addEventListener("securitypolicyviolation", (event) => done(event.effectiveDirective));
          fetch("http://127.0.0.1:9/").catch(() => {});
          setTimeout(() => done("nothing"), 5000);
        })"""
    )
    assert refused == "connect-src"
    inline = page.evaluate(
        """() => { const node = document.createElement("div"); node.setAttribute("onclick", "window.hacked = 1");
          document.body.append(node); node.click(); return window.hacked ?? null; }"""
    )
    assert inline is None
    open_page.seen.clear()  # the two refusals are told on the console


@pytest.mark.parametrize("kind", KINDS)
def test_page_fits_a_phone(open_page, kind):
    page = open_page(kind, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    beyond = """() => [...document.querySelectorAll("main *")].filter((node) => !node.closest(".scroll, .plot, option")
      && node.getBoundingClientRect().right > 360).map((node) => node.outerHTML.slice(0, 100))"""
    assert page.evaluate(beyond) == []
    assert page.locator(".big strong").bounding_box()["height"] >= 30


@pytest.mark.parametrize("kind", ["matrix", "sampled"])
def test_print_fits_the_paper(open_page, kind):
    page = open_page(kind, viewport={"width": 690, "height": 970})  # A4 less its margins
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= 690


def test_dark_and_print(open_page):
    colour = "getComputedStyle(document.body).backgroundColor"
    page = open_page("two", color_scheme="dark")
    dark = page.evaluate(colour)
    page.emulate_media(color_scheme="light")
    light = page.evaluate(colour)
    brightness = [sum(int(part) for part in c.strip("rgb()").split(",")) for c in (dark, light)]
    assert brightness[0] < 120 and brightness[1] > 700
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(colour) == "rgb(255, 255, 255)"
    assert page.locator("#cost-0").is_hidden() and page.locator("#reset").is_hidden()
    assert page.locator("input[type=number][data-y='1']").is_visible()
    assert page.locator(".plot svg").first.is_visible()
    assert page.pdf(format="A4").startswith(b"%PDF")
