"use strict";
// The figures of the page for other costs. Mirrors summary.py and wording.py: the same formulas, sums in the same order.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { labels, unit, totals, kept, levels, at, parts: UNIT, z: Z, per: PER, ticks: TICKS, steps: STEPS } = data;
  const k = labels.length, n = totals.reduce((a, b) => a + b, 0), m = kept.reduce((a, b) => a + b, 0);
  const range = [...Array(k).keys()], POWERS = [1, 10, 100, 1e3, 1e4, 1e5, 1e6];
  const zeros = (...shape) => Array.from({ length: shape[0] }, () => (shape.length > 1 ? zeros(...shape.slice(1)) : 0));
  const first = (values, best) => values.indexOf(best(...values));

  // ------------------------------------------------------------ the held-out cases

  const P = new Float64Array(m * k), Y = new Int32Array(m); // rows are ordered by class; the last class has what is left of UNIT
  for (let i = 0, read = 0, y = 0, end = kept[0]; i < m; i++) {
    while (i >= end) end += kept[++y];
    Y[i] = y;
    let left = UNIT;
    for (let j = 0; j < k - 1; j++) left -= P[i * k + j] = data.P[read++];
    P[i * k + k - 1] = left;
  }
  const unequal = zeros(k, k).map((row, y) => row.map((_, j) => (y === j ? 0 : 1)));
  const scale = range.map((y) => (kept[y] ? totals[y] / kept[y] : 0));
  const matrixOf = (costs) => (data.vector ? unequal.map((row, y) => row.map((off) => off * costs[y])) : costs);

  function risks(costs, without) { // (m, k) expected cost of each decision, the errors on one class left out
    const flat = Float64Array.from(costs.flat()), risk = new Float64Array(m * k);
    for (let i = 0; i < m * k; i += k)
      for (let y = 0; y < k; y++)
        if (y !== without) for (let j = 0; j < k; j++) risk[i + j] += P[i + y] * flat[y * k + j];
    return risk;
  }

  function cheapest(risk, own, level) { // (m,) the first least of risk + level * own
    const decided = new Int32Array(m);
    for (let i = 0, here = 0; i < m; i++) {
      let least = Infinity, best = 0;
      for (let j = 0; j < k; j++, here++) {
        const cost = risk[here] + level * own[here];
        if (cost < least) { least = cost; best = j; }
      }
      decided[i] = best;
    }
    return decided;
  }

  const nothing = new Float64Array(m * k), decide = (costs) => cheapest(risks(costs, -1), nothing, 0);

  function tally(decided) {
    const counts = new Int32Array(k * k);
    for (let i = 0; i < m; i++) counts[Y[i] * k + decided[i]]++;
    return range.map((y) => [...counts.subarray(y * k, y * k + k)]);
  }

  const equal = decide(unequal), equalCounts = tally(equal);

  // ------------------------------------------------------------ means and intervals

  function meanAndVariance(values, counts) {
    let total = 0, within = 0, between = 0;
    for (let y = 0; y < k; y++) {
      if (totals[y] === 0) continue;
      let one = 0, two = 0;
      for (let r = 0; r < values[y].length; r++) {
        one += counts[y][r] * values[y][r];
        two += counts[y][r] * values[y][r] * values[y][r];
      }
      const mu = one / kept[y], p = totals[y] / n;
      total += (totals[y] / kept[y]) * one;
      within += (p * p * Math.max(two / kept[y] - mu * mu, 0)) / kept[y];
      between += p * mu * mu;
    }
    const mean = total / n;
    return [mean, within + Math.max(between - mean * mean, 0) / n];
  }

  function costInterval([mean, variance], step, largest, back) {
    const quantile = (mean, variance, z) => {
      if (variance <= 0 || mean <= 0) return mean;
      const a = (mean * mean) / variance;
      const root = Math.max(1 - 1 / (9 * a) + z / (3 * Math.sqrt(a)), 0);
      return mean * root * root * root;
    };
    if (mean > largest / 2) {
      const rest = Math.max(largest - mean, 0);
      const low = largest - quantile(rest + back, variance + back * back, Z);
      return { mean, low: Math.max(low, 0), high: largest - quantile(rest, variance, -Z) };
    }
    const high = quantile(mean + step, variance + step * step, Z);
    return { mean, low: quantile(mean, variance, -Z), high: Math.min(high, largest) };
  }

  function shareInterval(found, cases) {
    if (cases === 0) return { mean: NaN, low: NaN, high: NaN };
    const p = found / cases, z2 = Z * Z;
    const middle = (p + z2 / (2 * cases)) / (1 + z2 / cases);
    const reach = (Z * Math.sqrt((p * (1 - p)) / cases + z2 / (4 * cases * cases))) / (1 + z2 / cases);
    const low = Math.max(middle - reach, 0), high = Math.min(middle + reach, 1);
    return { mean: p, low: found === 0 ? 0 : low, high: found === cases ? 1 : high };
  }

  function paired(values, counts) {
    const [mean, variance] = meanAndVariance(values, counts), reach = Z * Math.sqrt(variance);
    return { mean, low: mean - reach, high: mean + reach };
  }

  // ------------------------------------------------------------ all figures

  function constantCosts(c) {
    const cost = zeros(k);
    for (let y = 0; y < k; y++) for (let j = 0; j < k; j++) cost[j] += totals[y] * c[y][j];
    return cost;
  }

  function summarize(c) {
    const decided = decide(c), counts = tally(decided);
    const constant = first(constantCosts(c), Math.min);
    const dearest = Math.max(...range.map((y) => scale[y] * Math.max(...c[y]))) / n;
    const dearestConstant = Math.max(...range.map((y) => scale[y] * c[y][constant])) / n;
    const largest = Math.max(...c.flat()), largestConstant = Math.max(...c.map((row) => row[constant]));
    const heaviest = Math.max(...scale) / n; // what a case counts for at most
    const most = [largest, heaviest * largest], mostConstant = [largestConstant, heaviest * largestConstant];
    const joint = zeros(k, k * k), column = zeros(k);
    const fixedCosts = c.map((row) => [row[constant]]), everyone = kept.map((cases) => [cases]);
    for (let i = 0; i < m; i++) joint[Y[i]][equal[i] * k + decided[i]]++;
    for (let y = 0; y < k; y++) for (let j = 0; j < k; j++) column[j] += scale[y] * counts[y][j];
    return {
      counts,
      constant,
      cost: costInterval(meanAndVariance(c, counts), dearest, ...most),
      equalCost: costInterval(meanAndVariance(c, equalCounts), dearest, ...most),
      constantCost: costInterval(meanAndVariance(fixedCosts, everyone), dearestConstant, ...mostConstant),
      savedOnEqual: paired(c.map((row) => range.flatMap((e) => range.map((j) => row[e] - row[j]))), joint),
      savedOnConstant: paired(c.map((row) => row.map((cost) => row[constant] - cost)), counts),
      sensitivity: range.map((y) => shareInterval(counts[y][y], kept[y])),
      equalSensitivity: range.map((y) => (kept[y] ? equalCounts[y][y] / kept[y] : NaN)),
      predictive: range.map((j) => (column[j] > 0 ? (scale[j] * counts[j][j]) / column[j] : NaN)),
    };
  }

  function meanCost(counts, c) {
    let total = 0;
    for (let y = 0; y < k; y++) {
      if (totals[y] === 0) continue;
      let row = 0;
      for (let j = 0; j < k; j++) row += counts[y][j] * c[y][j];
      total += (totals[y] / kept[y]) * row;
    }
    return total / n;
  }

  function costCurve(costs, shown) {
    const c = matrixOf(costs).map((row) => [...row]);
    const one = data.vector ? unequal[shown] : [...c[shown]];
    const others = risks(c, shown), own = new Float64Array(m * k);
    for (let i = 0; i < m * k; i += k) for (let j = 0; j < k; j++) own[i + j] = P[i + shown] * one[j];
    const curve = { model: [], equal: [], constant: [] };
    for (const level of levels) {
      const decided = cheapest(others, own, level);
      c[shown] = one.map((cost) => level * cost);
      curve.model.push(meanCost(tally(decided), c));
      curve.equal.push(meanCost(equalCounts, c));
      curve.constant.push(Math.min(...constantCosts(c).map((cost) => cost / n)));
    }
    return curve;
  }

  // ------------------------------------------------------------ digits

  function fixed(x, digits) {
    const power = POWERS[digits], whole = Math.floor(Math.abs(x) * power + 0.5);
    const left = Math.floor(whole / power), part = whole - left * power;
    return (x < 0 && whole ? "−" : "") + left + (digits ? "." + String(part).padStart(digits, "0") : "");
  }
  const grouped = (text) => text.replace(/^(−?)(\d+)/, (_, sign, whole) => sign + whole.replace(/\B(?=(\d{3})+$)/g, ","));
  function decimals(x, least) {
    let digits = 0;
    while (Math.abs(x) * POWERS[digits] < least && digits < 6) digits++;
    return digits;
  }
  const amount = (x) => (x === 0 ? "0" : grouped(fixed(x, decimals(x, 10))));
  function number(x) {
    const text = grouped(fixed(x, decimals(x, 1000)));
    return text.includes(".") ? text.replace(/0+$/, "").replace(/\.$/, "") : text;
  }
  const share = (x) => (Number.isNaN(x) ? "–" : fixed(100 * x, 1) + "%");
  const percent = (x) => fixed(100 * x, 2) + "%";
  const quoted = (label) => `“\u2068${label}\u2069”`;
  const money = (x) => amount(PER * x) + (unit ? `\u00a0${unit}` : "");

  // ------------------------------------------------------------ texts and shapes

  function answer(texts, shapes, summary) {
    const against = (opening, other, saved) => {
      opening = `${opening} ${money(other.mean)}`;
      if (saved.low === 0 && saved.high === 0) return `${opening}: the same.`;
      const interval = `95% interval ${amount(PER * saved.low)} to ${amount(PER * saved.high)}`;
      const chance = saved.low <= 0 && 0 <= saved.high ? " This may be chance: the interval includes 0." : "";
      if (saved.mean >= 0) {
        const part = other.mean > 0 ? `, or ${share(saved.mean / other.mean)}` : "";
        return `${opening}: the model saves ${money(saved.mean)}${part} (${interval}).${chance}`;
      }
      const off = chance || " The probabilities of the model are not right for these cases: have them calibrated.";
      return `${opening}: ${money(-saved.mean)} less than the model (${interval}).${off}`;
    };
    const everyone = quoted(labels[summary.constant]);
    texts["cost"] = money(summary.cost.mean);
    texts["interval"] = `95% interval ${amount(PER * summary.cost.low)} to ${amount(PER * summary.cost.high)}`;
    texts["on_constant"] = against(
      `Without a model, the best single decision for everyone is ${everyone}. It would cost`,
      summary.constantCost,
      summary.savedOnConstant,
    );
    texts["on_equal"] = against(
      "If it ignored the costs, the same model would cost", summary.equalCost, summary.savedOnEqual,
    );
    texts["bar.constant.name"] = `No model: always ${everyone}`;
    const bars = { model: summary.cost, equal: summary.equalCost, constant: summary.constantCost };
    const longest = Math.max(...Object.values(bars).map((estimate) => estimate.high), 1e-300);
    for (const [name, cost] of Object.entries(bars)) {
      texts[`bar.${name}.cost`] = amount(PER * cost.mean);
      texts[`bar.${name}.interval`] = `${amount(PER * cost.low)} to ${amount(PER * cost.high)}`;
      shapes[`bar.${name}`] = { width: percent(cost.mean / longest) };
      shapes[`bar.${name}.reach`] = { x1: percent(cost.low / longest), x2: percent(cost.high / longest) };
    }
  }

  function rule(texts, costs) {
    const least = "Each case gets the decision whose expected cost is least.";
    if (!data.vector) {
      const off = range.flatMap((y) => range.filter((j) => j !== y).map((j) => [y, j]));
      const cost = off.map(([y, j]) => costs[y][j]);
      const [high, low] = [off[first(cost, Math.max)], off[first(cost, Math.min)]];
      texts["ratio"] =
        `The dearest error is taking ${quoted(labels[high[0]])} for ${quoted(labels[high[1]])}: it costs ` +
        `${number(costs[high[0]][high[1]])}. The cheapest, taking ${quoted(labels[low[0]])} for ` +
        `${quoted(labels[low[1]])}, costs ${number(costs[low[0]][low[1]])}.`;
      texts["rule"] = least;
      return;
    }
    const high = first(costs, Math.max), low = first(costs, Math.min), dear = costs[high], cheap = costs[low];
    texts["ratio"] =
      dear === cheap
        ? "All errors cost the same."
        : `One error on ${quoted(labels[high])} weighs as much as ${number(dear / cheap)} on ${quoted(labels[low])}.`;
    const threshold = costs[1 - high] / (costs[0] + costs[1]);
    texts["rule"] =
      k > 2 ? least : `So the decision is ${quoted(labels[high])} once its probability passes ${share(threshold)}.`;
  }

  function confusion(texts, shapes, summary, c) {
    const times = zeros(k, k), cost = zeros(k, k);
    let total = 0;
    for (let y = 0; y < k; y++)
      for (let j = 0; j < k; j++) {
        times[y][j] = scale[y] * summary.counts[y][j];
        cost[y][j] = times[y][j] * c[y][j];
        total += cost[y][j];
      }
    const dearest = Math.max(...cost.flat());
    for (let y = 0; y < k; y++)
      for (let j = 0; j < k; j++) {
        texts[`n.${y}.${j}`] = grouped(fixed(times[y][j], 0));
        if (y === j) continue;
        texts[`c.${y}.${j}`] = `cost ${number(cost[y][j])}`;
        const level = cost[y][j] > 0 ? 1 + Math.floor((3.999 * cost[y][j]) / dearest) : 0;
        shapes[`cell.${y}.${j}`] = { "data-level": String(level) };
      }
    texts["total"] = number(total);
    for (let j = 0; j < k; j++) texts[`predictive.${j}`] = share(summary.predictive[j]);
  }

  function sensitivity(texts, shapes, summary) {
    summary.sensitivity.forEach((found, y) => {
      const ignored = summary.equalSensitivity[y];
      texts[`found.${y}`] = share(found.mean);
      if (!kept[y]) {
        texts[`found.${y}.of`] = "no cases";
        return;
      }
      const right = grouped(fixed((totals[y] / kept[y]) * summary.counts[y][y], 0));
      texts[`found.${y}.of`] = `${right} of ${grouped(String(totals[y]))}`;
      texts[`found.${y}.interval`] = `95% interval ${share(found.low)} to ${share(found.high)}`;
      texts[`found.${y}.equal`] = `costs ignored: ${share(ignored)}`;
      shapes[`found.${y}.bar`] = { width: percent(found.mean) };
      shapes[`found.${y}.reach`] = { x1: percent(found.low), x2: percent(found.high) };
      shapes[`found.${y}.mark`] = { x1: percent(ignored), x2: percent(ignored) };
    });
  }

  function place(level) {
    if (level <= levels[0]) return at[0];
    for (let i = 1; i < levels.length; i++)
      if (level <= levels[i])
        return at[i - 1] + ((at[i] - at[i - 1]) * (level - levels[i - 1])) / (levels[i] - levels[i - 1]);
    return at[at.length - 1];
  }

  let drawn = { key: "", curve: null }; // of a cost vector, the curve does not change with the cost it is drawn over

  function drawCurve(texts, shapes, summary, costs, shown) {
    const key = JSON.stringify([shown, costs.map((cost, y) => (data.vector && y === shown ? 0 : cost))]);
    if (drawn.key !== key) drawn = { key, curve: costCurve(costs, shown) };
    const curve = drawn.curve;
    const highest = PER * Math.max(...curve.model, ...curve.constant);
    const step = STEPS.find((step) => TICKS * step >= highest) ?? STEPS[STEPS.length - 1];
    const top = Math.max(1.04 * highest, step);
    const path = (line) =>
      "M" + line.map((cost, i) => {
        const y = fixed(1000 - 1000 * Math.min((PER * cost) / top, 2), 1).replace("−", "-");
        return `${fixed(1000 * at[i], 1)} ${y}`;
      }).join("L");
    for (const name of ["model", "equal", "constant"]) shapes[`curve.${name}`] = { d: path(curve[name]) };
    for (let i = 1; i <= TICKS; i++) {
      const here = (step * i) / top, visibility = here <= 1 ? "visible" : "hidden";
      const y = percent(1 - Math.min(here, 1));
      texts[`tick.${i}`] = number(step * i);
      shapes[`tick.${i}`] = { y, visibility };
      shapes[`grid.${i}`] = { y1: y, y2: y, visibility };
    }
    const x = percent(place(data.vector ? costs[shown] : 1));
    shapes["now"] = { x1: x, x2: x };
    shapes["dot"] = { cx: x, cy: percent(Math.max(1 - (PER * summary.cost.mean) / top, 0)) };
    const label = quoted(labels[shown]);
    texts["curve.x"] = data.vector
      ? `what an error on ${label} costs, the others as set above`
      : `all costs of errors on ${label}, times what is set above`;
  }

  // ------------------------------------------------------------ the page

  const copy = (costs) => (data.vector ? [...costs] : costs.map((row) => [...row]));
  const state = { costs: copy(data.costs), shown: data.shown };
  const named = (name) => [...document.querySelectorAll(`[data-${name}]`)];
  const [textNodes, shapeNodes] = [named("t"), named("s")];
  const fields = [...document.querySelectorAll("input[type=number]")], dials = [...document.querySelectorAll("input[type=range]")];
  const reset = document.getElementById("reset"), pick = document.getElementById("pick"), wrong = document.querySelector(".wrong");

  function update() {
    const texts = {}, shapes = {}, c = matrixOf(state.costs), summary = summarize(c);
    answer(texts, shapes, summary);
    rule(texts, state.costs);
    confusion(texts, shapes, summary, c);
    sensitivity(texts, shapes, summary);
    drawCurve(texts, shapes, summary, state.costs, state.shown);
    for (const node of textNodes) if (node.textContent !== texts[node.dataset.t]) node.textContent = texts[node.dataset.t];
    for (const node of shapeNodes)
      for (const [attribute, value] of Object.entries(shapes[node.dataset.s])) node.setAttribute(attribute, value);
    reset.disabled = JSON.stringify(state.costs) === JSON.stringify(data.costs);
  }

  const costOf = (input) => (data.vector ? state.costs[input.dataset.y] : state.costs[input.dataset.y][input.dataset.j]);
  const written = (cost) => number(cost).replaceAll(",", "");

  function setDial(dial) { // to the level nearest to the cost, in ratio
    const cost = costOf(dial), apart = levels.map((level) => Math.max(level / cost, cost / level));
    dial.value = first(apart, Math.min);
    dial.setAttribute("aria-valuetext", number(cost));
  }

  function complain(field, text) {
    for (const other of fields) other.removeAttribute("aria-invalid");
    wrong.hidden = !text;
    wrong.textContent = text;
    if (text) field.setAttribute("aria-invalid", "true");
  }

  function typed(field) {
    const { y, j } = field.dataset, cost = field.valueAsNumber;
    const [low, high] = [Number(field.min), Number(field.max)];
    if (!(cost >= low && cost <= high)) return complain(field, `A cost must be a number from ${number(low)} to ${number(high)}.`);
    const costs = copy(state.costs);
    if (data.vector) costs[y] = cost;
    else costs[y][j] = cost;
    if (!matrixOf(costs)[y].some((entry) => entry > 0)) return complain(field, `At least one error on ${quoted(labels[y])} must cost something.`);
    complain(field, "");
    state.costs = costs;
    // what was refused in another field must not stay there without its mark
    for (const other of fields) if (other !== field && other.valueAsNumber !== costOf(other)) other.value = written(costOf(other));
    dials.filter((dial) => dial.dataset.y === y).forEach(setDial);
    update();
  }

  function moved(dial) {
    state.costs[dial.dataset.y] = levels[dial.value];
    complain(null, "");
    dial.setAttribute("aria-valuetext", number(levels[dial.value]));
    for (const field of fields) field.value = written(costOf(field));
    update();
  }

  function restore() {
    state.costs = copy(data.costs);
    complain(null, "");
    for (const field of fields) field.value = written(costOf(field));
    dials.forEach(setDial);
    update();
  }

  document.documentElement.classList.add("script");
  for (const field of fields) field.addEventListener("input", () => typed(field));
  for (const dial of dials) dial.addEventListener("input", () => moved(dial));
  document.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
  reset.addEventListener("click", restore);
  pick.addEventListener("change", () => { state.shown = Number(pick.value); update(); });
  pick.value = String(state.shown); // some browsers keep what was picked before a reload
  restore();
})();
