"""A real browser opens cards. This is the one test that may be skipped: where there is no Chromium to drive.

On Debian, `apt-get install chromium chromium-driver` brings both halves; then it is part of the ordinary run.
"""

import json
import shutil

import numpy as np
import polars as pl
import pytest
from cardfacts import FACTS, NOT_PRIVATE, ONE

from labeldp.privacy.vault.labeled_table import SecretTable
from labeldp.report.card import make_card, write_card
from labeldp.report.card.formatting import format_lower, format_upper, percent
from labeldp.runs.config import TrainConfig
from labeldp.runs.training import train_to_folder as train_run

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium, which drives browsers, is not installed")
from selenium.webdriver.chrome.service import Service  # noqa: E402

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
DRIVER = shutil.which("chromedriver") or shutil.which("chromium.chromedriver")
pytestmark = pytest.mark.skipif(not (BROWSER and DRIVER), reason="there is no Chromium with its driver")

LONG = [
    f"K{i:02d} Diseases of the digestive system, unspecified and <rare> forms {'of many kinds ' * 5}"
    for i in range(100)
]
MANY = FACTS | {
    "space": {"classes": LONG, "missing": "error"},
    "data": {"name": "a_file_name_without_any_space_" * 4 + ".parquet", "rows": 10**9, "label": "x" * 120},
    "warnings": ["Epsilon_" + "9" * 200],
    "audits": [ONE],
}
UNBROKEN = FACTS | {"space": {"classes": ["x" * 300, "y" * 300], "missing": "error"}, "audits": [{"kind": "z" * 300}]}
CARDS = {"plain": FACTS, "not private": NOT_PRIVATE | {"audits": [ONE]}, "many": MANY, "unbroken": UNBROKEN}

# Every text with the contrast between its color and the first opaque background below it, as WCAG 2 defines it.
CONTRASTS = """
const linear = v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
const luminance = rgb => { const [r, g, b] = rgb.map(linear); return .2126 * r + .7152 * g + .0722 * b; };
const read = text => text.match(/[\\d.]+/g).map(Number);
const below = node => {
  for (; node; node = node.parentElement) {
    const color = read(getComputedStyle(node).backgroundColor);
    if (color.length < 4 || color[3] > 0) return color.slice(0, 3);
  }
  return [255, 255, 255];
};
const holds = node => [...node.childNodes].some(child => child.nodeType == 3 && child.data.trim());
return [...document.querySelectorAll('main *')].filter(holds).map(node => {
  const style = getComputedStyle(node), drawn = node.namespaceURI.endsWith('svg');
  const [a, b] = [luminance(read(drawn ? style.fill : style.color).slice(0, 3)), luminance(below(node))];
  return [node.textContent.slice(0, 30), (Math.max(a, b) + .05) / (Math.min(a, b) + .05)];
});
"""
# What reaches beyond the sheet; bars cut their own names.
OUTSIDE = """
const sheet = document.querySelector('main').getBoundingClientRect();
return [...document.querySelectorAll('main *')].filter(node => {
  const box = node.getBoundingClientRect();
  return !node.closest('.bars') && box.width && (box.left < sheet.left - 1 || box.right > sheet.right + 1);
}).map(node => node.tagName + ' ' + node.textContent.slice(0, 40));
"""
BACKGROUND = "return getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).slice(0, 3).map(Number)"


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder with an audit."""
    folder = tmp_path_factory.mktemp("browser")
    x = np.random.default_rng(0).normal(size=2000)
    pl.DataFrame({"age": x, "rich": x > 0}).write_parquet(folder / "people.parquet")
    table = SecretTable.open(folder / "people.parquet", "rich", "false,true")
    train_run(table, table.vault(1.0), TrainConfig(1.0, recipe="moments"), folder / "run")
    (folder / "run" / "audit.json").write_text(json.dumps(ONE))
    write_card(folder / "run")
    return folder / "run"


def opened(browser, page, width=1280, scheme="light"):
    """Open a page as a reader would, and return all that it requested."""
    browser.get("about:blank")
    browser.get_log("performance")
    browser.get_log("browser")
    scheme = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", scheme)
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(page.as_uri())
    events = [json.loads(line["message"])["message"] for line in browser.get_log("performance")]
    return [each["params"]["request"]["url"] for each in events if each["method"] == "Network.requestWillBeSent"]


def text(browser, name):
    return browser.execute_script("return document.getElementById(arguments[0]).textContent", name)


def test_the_page_shows_the_figures_of_the_data_and_requests_nothing_else(browser, run):
    page = run / "card.html"
    assert opened(browser, page) == [page.as_uri()]
    assert browser.get_log("browser") == []  # no complaint about style or markup
    data = json.loads((run / "card.json").read_text(encoding="utf-8"))
    assert browser.title == "Privacy card"
    assert text(browser, "stated-epsilon") == f"≤ {format_upper(data['stated']['epsilon'])}" == "≤ 1"
    assert text(browser, "best-guess") == percent(data["gains"][0]["at_most"]) == "73%"
    assert text(browser, "accuracy") == f"{data['score']['accuracy'][0]:.1%}"
    assert text(browser, "audit") == f"≥ {format_lower(data['audits'][0]['lower_bound'])}"
    body = browser.execute_script("return document.body.innerText")
    for part in (
        f"{data['data']['rows']:,} rows of {data['data']['name']}",
        *(entry["mechanism"] for entry in data["ledger"]),
        *(str(entry["released"]) for entry in data["ledger"] if entry["released"] < 1000),
        data["score"]["method"],
        data["packages"]["numpy"],
        percent(data["noisy_label"]["unchanged"]),
    ):
        assert part in body


def test_the_bars_are_as_long_as_the_probabilities(browser, run):
    opened(browser, run / "card.html")
    data = json.loads((run / "card.json").read_text(encoding="utf-8"))["noisy_label"]
    measure = "return [...document.querySelectorAll(arguments[0])].map(n => n.getBoundingClientRect().width)"
    (track, *_), (unchanged,), (moved,) = (
        browser.execute_script(measure, f".bars .{c}") for c in ("track", "unchanged", "moved")
    )
    assert unchanged / track == pytest.approx(data["unchanged"], abs=0.005)
    assert moved / track == pytest.approx(data["each_other"], abs=0.005)
    assert len(browser.execute_script(measure, "circle.unchanged")) == round(100 * data["unchanged"])


def test_what_is_not_private_says_so_on_the_first_screen(browser, tmp_path):
    make_card(NOT_PRIVATE).save(tmp_path / "card.html")
    for width in (1280, 390):
        opened(browser, tmp_path / "card.html", width)
        place = (
            "const r = document.querySelector('.alert').getBoundingClientRect(); return [r.top, r.bottom, innerHeight]"
        )
        top, bottom, height = browser.execute_script(place)
        assert 0 < top < bottom < height / 2
    assert text(browser, "stated-epsilon") == "infinite"


@pytest.mark.parametrize("width", [1280, 390, 320])
@pytest.mark.parametrize("name", list(CARDS))
def test_nothing_reaches_beyond_the_sheet(browser, tmp_path, name, width):
    make_card(CARDS[name]).save(tmp_path / "card.html")
    assert len(opened(browser, tmp_path / "card.html", width)) == 1
    assert browser.execute_script("return document.documentElement.scrollWidth") == width
    assert browser.execute_script(OUTSIDE) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["not private", "many"])
def test_every_text_can_be_read(browser, tmp_path, name, scheme):
    make_card(CARDS[name]).save(tmp_path / "card.html")
    opened(browser, tmp_path / "card.html", scheme=scheme)
    found = browser.execute_script(CONTRASTS)
    assert len(found) > 50
    assert [(words, contrast) for words, contrast in found if contrast < 4.5] == []
    assert (sum(browser.execute_script(BACKGROUND)) < 200) is (scheme == "dark")
