from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from comity.artefacts.section import Curve, Curves, Dot, Dots, Panel, Panels
from comity.data import clinics
from comity.federation.coordinator.transcript import Line, Transcript
from comity.federation.evaluation.assessment import Assessment, Baseline
from comity.learn import LinearClassifier, LinearRegressor
from comity.learn.classifiers import find_strongest
from comity.learn.feature_map import FeatureMap
from comity.report.curve_plots import draw_curves
from comity.report.page import count_traffic, format_bytes, group_costs, list_warnings, render_result
from comity.report.plots import GREY, SIZE, draw_dots, draw_errors, draw_panels, text_width
from comity.report.sentences import describe_quality
from comity.study.results.result import Account
from tests.report.small_run import left, protocol, simulated

FETCHING = {"src", "href", "xlink:href", "action", "data", "poster", "srcset"}
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Collects text and addresses, and notices tags that are not closed in order."""

    def __init__(self, text: Any) -> None:
        super().__init__()
        self.classes: list[str] = []
        self.addresses: list[str] = []
        self.words: list[str] = []
        self.open: list[Any] = []
        self.wrong: list[Any] = []
        self.loose: list[Any] = []
        self.feed(text)

    def handle_starttag(self, tag: Any, attrs: Any) -> None:
        self.addresses += [value for name, value in attrs if name in FETCHING]
        if tag == "table" and "scroll" not in self.classes:
            self.loose.append(attrs)
        if tag not in VOID:
            self.open.append(tag)
            self.classes.append(dict(attrs).get("class", ""))

    def handle_startendtag(self, tag: Any, attrs: Any) -> None:
        self.addresses += [value for name, value in attrs if name in FETCHING]

    def handle_endtag(self, tag: Any) -> None:
        self.classes.pop()
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: Any) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> Any:
        return re.sub(r"\s+", " ", " ".join(self.words))


@pytest.fixture(scope="module")
def result() -> Any:
    return simulated(test=clinics(1, 80, "test")["clinic-01"])


def test_the_page_asks_nobody_for_anything(result: Any) -> None:
    text = render_result(result)
    page = Page(text)
    assert not re.search(r"https?:|//\w+\.|@import|url\((?!#)|<script", text)
    assert all(address.startswith(("#", "data:")) for address in page.addresses)
    assert page.wrong == [] and page.open == []


def test_the_first_screen_answers_four_questions_with_their_figures(result: Any) -> None:
    text = Page(render_result(result)).text
    places = [
        text.index(question)
        for question in ("What was learned?", "How good is it?", "What did it cost each owner?", "Who saw what?")
    ]
    assert places == sorted(places) and places[-1] < text.index("Releases")
    assert "readmitted (no, yes) from 12 columns" in text
    for shown in (result.error, *(baseline.error for baseline in result.baselines)):
        assert f"{shown:.3f}" in text
    assert result.declaration is not None and "their best guess is right at most 73.2 % of the time" in text
    assert "eps 1.00 at delta 1e-6" in text and left(2.5, 1) in text and "(eps 2.50, delta 1e-6)" in text
    assert "coordinator models in clear to the coordinator" in text
    assert result.guarantee.adversary in text
    assert result.study_hash in text and "run.begin[0]" in text


def test_names_are_escaped(result: Any) -> None:
    text = render_result(replace(result, study="<img src=x>", settings={"a": ["<i>", {"k": 1}]}))
    assert "<img" not in text and "&lt;img src=x&gt;" in text
    assert "&lt;i&gt;, k = 1" in text


def test_seeded_and_disputed_results_open_with_a_banner(result: Any) -> None:
    assert "Simulation with a seed: not a private result" in render_result(result)
    honest = replace(result, guarantee=replace(result.guarantee, seeded=False))
    assert 'role="alert"' not in render_result(honest)
    disputed = replace(result, guarantee=replace(result.guarantee, seeded=False, claim="not private as claimed: eps 9"))
    assert "Not private as claimed: eps 9" in Page(render_result(disputed)).text
    assert render_result(disputed).count('role="alert"') == 1


def test_without_a_score_the_page_gives_the_reason(result: Any) -> None:
    text = Page(render_result(replace(result, assessment=Assessment()))).text
    assert "is itself a release" in text and "test error" not in text


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (0.2, "Better than a party alone (0.300), 0.100 above"),
        (0.35, "Not better than"),
        (0.4, "No better than a constant, always no (0.400): of no use"),
    ],
)
def test_the_verdict_is_plain(result: Any, error: float, said: str) -> None:
    compared = (Baseline("constant", 0.4, note="always no"), Baseline("own data", 0.3), Baseline("pooled", 0.1))
    assert said in describe_quality(replace(result, assessment=Assessment(error, baselines=compared)))


@pytest.mark.parametrize(
    ("best", "said"),
    [
        (0.25, "Better than a party alone (0.300 on average), better than the best party alone (0.250), 0.100 above"),
        (0.22, "The best party's own records would do as well: for the model alone, joining does not pay for it."),
        (0.15, "not better than the best party alone (0.150)"),
    ],
)
def test_the_verdict_compares_with_the_best_party(result: Any, best: float, said: str) -> None:
    compared = (Baseline("constant", 0.4), Baseline("own data", 0.3, best=best), Baseline("pooled", 0.1))
    assert said in describe_quality(replace(result, assessment=Assessment(0.2, baselines=compared)))


def test_the_verdict_says_where_joining_does_not_pay(result: Any) -> None:
    """A gain of a tenth of what all records gain over a constant is next to nothing."""
    said = {}
    for own in (0.22, 0.24):
        compared = (Baseline("constant", 0.4), Baseline("own data", own), Baseline("pooled", 0.1))
        said[own] = describe_quality(replace(result, assessment=Assessment(0.2, baselines=compared)))
    assert "A party's own records would do as well: for the model alone, joining does not pay." in said[0.22]
    assert "joining" not in said[0.24]


def test_equal_ledgers_share_a_line(result: Any) -> None:
    many = tuple(Account(f"p{i}", "eps 3.00", "eps 1.00", "eps 2.00") for i in range(9))
    other = Account("late", "eps 3.00", "eps 2.00", "eps 1.00")
    lines = group_costs(replace(result, accounts=(*many, other), parties=10))
    assert [(line.parties, line.left) for line in lines] == [(9, "eps 2.00"), (1, "eps 1.00")]
    assert lines[0].names == "p0, p1, p2 and 6 more" and lines[1].names == "late"
    apart = tuple(Account(f"p{i}", "eps 9.00", f"eps {i}.00", f"eps {9 - i}.00") for i in range(8))
    assert "Ledgers after the run" in render_result(replace(result, accounts=apart))


def test_traffic_is_summed_by_step() -> None:
    lines = [Line(f"sum.mask[{i}]", way, 4, 10, "") for i in range(3) for way in ("to parties", "to coordinator")]
    (step,) = count_traffic(Transcript(tuple(lines)))
    assert (step.step, step.rounds, step.parties, step.down, step.up) == ("sum.mask", 3, 4, 30, 30)


def test_a_long_transcript_is_cut_and_says_so(result: Any) -> None:
    lines = tuple(Line(f"sum.mask[{i}]", "to parties", 4, 10, "ab") for i in range(200))
    text = Page(render_result(replace(result, transcript=Transcript(lines)))).text
    assert "The first 60 of 200 lines" in text


def test_the_strongest_weights_come_first(result: Any) -> None:
    found = find_strongest(result.model)
    assert len(found) == 12
    sizes = [abs(weight.value) for weight in found]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == abs(result.model.coef_).max()
    three = protocol(classes=("a", "b", "c")).present({"model": [[1.0] * 21, [-2.0] * 21]}, cast(Any, None))
    assert {weight.label.partition(": ")[0] for weight in find_strongest(three)} <= {"a", "b", "c"}
    assert "of no" not in render_result(replace(result, presented=three, assessment=Assessment()))
    bare = LinearClassifier(three.coef, three.classes)
    assert find_strongest(bare) == () and bare.section().plots == ()


def errors_of(about: Any, *methods: Any) -> Curves:
    curves = tuple(Curve(name, (0.3, 1), (0.2, 0.1), (0.01, 0.01)) for name in methods)
    return Curves(about, "epsilon spent by each party", "error", curves, (Dot("pooled", 0.05),), logarithmic=True)


def test_plots_are_text_with_a_description_and_no_shared_ids() -> None:
    one = draw_errors(0.21, [Baseline("constant", 0.4), Baseline("own data", 0.3, 0.05)], "share")
    two = draw_dots(Dots("Weights", "weight", (Dot("age <65", 1.0), Dot("b", -2.0)), 0.3))
    three = draw_curves(errors_of("clinics", "avg"))
    for plot in (one, two, three):
        assert plot.startswith("<svg role=") and "http" not in plot and "<text" in plot
    assert ">0.210<" in one and "this result 0.210" in one and "age &lt;65" in two
    ids = [
        set(re.findall(r'\bid="((?!figure|axes|patch|text|line|xtick|ytick|matplotlib|Line|legend)[^"]+)"', p))
        for p in (one, two, three)
    ]
    assert not (ids[0] & ids[1] or ids[0] & ids[2] or ids[1] & ids[2])
    assert draw_errors(0.21, [], "share") == draw_errors(0.21, [], "share")


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (999, "999 B"), (88_800, "88.8 kB"), (5e13, "50 TB")])
def test_sizes_have_few_digits(count: float, text: str) -> None:
    assert format_bytes(count) == text


def test_every_table_scrolls_in_its_place_and_nothing_is_wider_than_a_telephone(result: Any) -> None:
    text = render_result(result)
    assert text.count("<table") >= 6 and Page(text).loose == []
    style = re.sub(r"\s+", " ", text[text.index("<style>") : text.index("</style>")])
    assert re.search(r"\.scroll \{ overflow-x: auto;", style)
    # A track of 1fr is as wide as its widest word; this one gives way.
    assert ".answers { grid-template-columns: minmax(0, 1fr); }" in style
    assert not [width for width in map(int, re.findall(r"min-width: (\d+)px", style)) if width > 300]


def test_the_transcript_is_folded_below_the_settings(result: Any) -> None:
    text = render_result(result)
    settings, transcript = text.index("<h2>Settings and versions</h2>"), text.index("<h2>Transcript</h2>")
    assert settings < transcript < text.rindex("<details>") < text.index("run.begin[0]")
    assert "<details open" not in text and text.rindex("</details>") > text.rindex("run.end[0]")


def test_traffic_is_one_sentence_and_steps_are_folded(result: Any) -> None:
    text = render_result(result)
    assert "rounds of encrypted messages" in text
    folded = text[text.index("By step of the protocol") :]
    assert "run.begin" not in text[: text.index("By step of the protocol")] and "run.begin" in folded


def test_weights_whose_noise_covers_zero_are_grey() -> None:
    drawn = draw_dots(Dots("Weights", "weight", (Dot("strong", 2.0), Dot("weak", 0.5), Dot("none", -0.1)), 0.3))
    assert drawn.count(f'stroke="{GREY}"/>') == 2 and "the sign may be chance" in drawn
    own = draw_dots(Dots("Weights", "weight", (Dot("a", 1.0, 0.1), Dot("b", 1.0, 0.6))))
    assert own.count(f'fill="white" stroke="{GREY}"/>') == 1 and "standard deviations of each" in own
    assert "chance" not in draw_dots(Dots("Weights", "weight", (Dot("a", 1.0),)))


def test_panels_show_both_tables_and_cut_long_names() -> None:
    panel = Panel(
        "a column <b> with quite a long name indeed, longer than its place", ("x", "y" * 60), (0.5, 0.5), (0.9, 0.1)
    )
    drawn = draw_panels(Panels("Shares", ("public", "dataset"), (panel, panel, panel)))
    assert drawn.count("<rect") == 2 + 3 * 4 and "<b>" not in drawn and "…" in drawn
    assert "public 0.500" in drawn and "dataset 0.900" in drawn


def test_an_interval_comes_before_the_measured_error(result: Any) -> None:
    share = "share of test records that is predicted wrongly"
    text = Page(render_result(replace(result, assessment=Assessment(0.25, share, tested=400)))).text
    assert "0.210 to 0.295" in text and text.index("0.210 to 0.295") < text.index("measured 0.250")


@pytest.mark.parametrize("rows", [1, 2])
def test_two_classes_have_one_weight_for_each_feature(result: Any, rows: int) -> None:
    names = result.model.encoding.names
    slope = np.linspace(-1, 2, len(names))
    model = LinearClassifier(np.stack([-slope, slope])[-rows:], ("no", "yes"), result.model.encoding)
    found = find_strongest(model)
    assert len({weight.label for weight in found}) == len(found) == 12
    # The last entry of a row is the constant one, which is no feature.
    assert names[-1] == "(intercept)" and found[0].label == names[-2]
    assert found[0].value == pytest.approx(slope[-2] * rows)
    assert "in favour of yes" in render_result(replace(result, presented=model))


def test_weights_behind_a_map_are_those_of_the_features(result: Any) -> None:
    encoding = result.model.encoding
    chance = np.random.default_rng(3)
    matrix, mean = chance.normal(size=(encoding.width, 3)), chance.normal(size=encoding.width)
    mapped = LinearClassifier(chance.normal(size=(1, 3)), ("no", "yes"), encoding, FeatureMap(mean, matrix))
    rows = chance.normal(size=(2, encoding.width))
    change = float(np.diff(mapped.decision_function(rows))[0])
    by_name = dict(zip(encoding.names, (mapped.weights @ matrix.T)[0]))
    assert {weight.label: weight.value for weight in find_strongest(mapped)}.items() <= {
        name: pytest.approx(value) for name, value in by_name.items()
    }.items()
    assert change == pytest.approx(float((rows[1] - rows[0]) @ np.array(list(by_name.values()))))
    assert find_strongest(replace_map(mapped, normalise=True)) == ()


def replace_map(model: Any, **options: Any) -> LinearClassifier:
    return LinearClassifier(model.coef, model.classes, model.encoding, replace(model.feature_map, **options))


def test_a_regression_is_measured_and_judged_as_one(result: Any) -> None:
    model = LinearRegressor([0.1] * result.model.encoding.width, 0.0, 10.0, result.model.encoding)
    assessed = Assessment(0.5, model.measure, (Baseline("constant", 0.4, note="always the mean"),))
    worse = replace(result, presented=model, assessment=assessed)
    text = Page(render_result(worse)).text
    assert "mean squared error" in text and "predicted wrongly" not in text and "most frequent" not in text
    assert "No better than a constant" in describe_quality(worse)


def test_a_legend_stands_clear_of_the_title_and_the_axes() -> None:
    plot = draw_curves(errors_of("breast cancer", "default", "avg", "soft", "vote"))
    below = float(cast(Any, re.search(r'viewBox="0 0 [\d.]+ ([\d.]+)"', plot)).group(1))
    at = {words: float(y) for y, words in re.findall(r'<text[^>]* y="([\d.]+)"[^>]*>([^<]+)<', plot)}
    axis = at["epsilon spent by each party"]
    assert at["breast cancer"] < 0.1 * below
    assert all(axis < at[name] < below for name in ("default", "avg", "soft", "vote"))


@pytest.mark.parametrize(
    "label",
    ["temperature × saturation", "heart_rate × temperature", "55<=age<65", "sex=(missing)", "MWÄ WORDS", "own data"],
)
@pytest.mark.parametrize("bold", [False, True])
def test_a_label_has_room_in_the_widest_of_the_common_fonts(label: str, bold: bool) -> None:
    import matplotlib
    from PIL import ImageFont

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    font = ImageFont.truetype(f"{matplotlib.get_data_path()}/fonts/ttf/{name}", 100)
    assert (
        font.getlength(label) / 100 * SIZE <= text_width(label, bold=bold) <= 1.7 * font.getlength(label) / 100 * SIZE
    )


def test_tables_fit_a_telephone_before_they_scroll(result: Any) -> None:
    """Cells lose their least width below 480 points; a browser measured that no table is cut there."""
    narrow = re.search(r"@media \(max-width: 480px\) \{(.*?)\n\}", render_result(result), re.S)
    assert narrow is not None
    for rule in (
        "min-width: 0; overflow-wrap: anywhere",
        ".scroll td.key { white-space: normal; }",
        # Names of participants, steps and settings keep their words whole.
        ".scroll td.role { min-width: 6.6em; }",
        ".scroll td.key { min-width: 8.8em; font-size: 11px; }",
        ".settings td.key { width: 52%; }",
        # Five columns become blocks, whose cells have their heads before them.
        ".stacked td::before { content: attr(data-label)",
    ):
        assert rule in narrow.group(1)
    page = render_result(result)
    assert (
        '<table class="stacked">' in page
        and '<td class="role" data-label="to">' in page
        and '<table class="settings">' in page
    )


def test_a_deployed_run_is_not_called_simulated(result: Any) -> None:
    assert "Simulated on one machine" in render_result(result)
    assert "Simulated on one machine" not in render_result(replace(result, simulated=False))


def test_the_page_says_how_to_attack_the_study(result: Any) -> None:
    assert "<code>comity audit study.toml</code>" in render_result(result)


def test_the_page_links_to_the_audit_that_is_beside_it(result: Any, tmp_path: Path) -> None:
    before = result.report(tmp_path / "report.html").read_text("utf-8")
    (tmp_path / "audit.html").write_text("an audit", encoding="utf-8")
    after = result.report(tmp_path / "report.html").read_text("utf-8")
    assert 'href="audit.html"' not in before and 'href="audit.html"' in after


def test_a_draft_is_no_count_of_records() -> None:
    notice = "the schema's bounds of age are a draft (draft = true): replace them"
    result = replace(simulated(seed=1), findings=(notice, "ash: 3 values were clipped"))
    warnings = dict(list_warnings(result))
    assert warnings["The schema is a draft"] == f"The{notice[3:]}."
    assert warnings["Look at the records again"] == (
        "ash: 3 values were clipped. These counts are exact: no guarantee covers them."
    )
