"""The gallery in the browser: what it shows, in which order, by mouse and keyboard, and how it takes many photographs."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from dicap.calibration.evidence import Evidence
from dicap.calibration.ranks import Curve, log_odds
from dicap.evaluation.answers import Answers
from dicap.files.artifacts import write_predictions
from dicap.photos.pages.gallery import LEVELS, chances_of_levels, levels_of, write_gallery

CLASSES = ["<b>\"tag\" & 'co'</b>", "100 %", "猫 кошка قط"]
FILES = ['we "are" <i>.png', "50%25 #1?.png", "dossier/été 猫.png", "a,b\nc.png", "&amp;.png", "it's.png"]
CURVE = Curve(np.array([-2.0, 0.0, 2.0]), np.array([0.1, 0.5, 0.8]))


def stated(curve=CURVE):
    return Answers(Evidence.none(np.full(len(CLASSES), 0.2), ""), curve)


def names_of(page):
    return page.locator(".tile bdi").all_text_contents()


def gallery_of(place, scores, images=FILES, curve=CURVE):
    """A gallery of photographs, the first 30 of which are still there; their names do harm where they can."""
    words = np.where(scores > 0.6, "yes", np.where(scores < 0.3, "no", "unsure"))
    columns = {"image": np.repeat(images, len(CLASSES)), "probability": scores.ravel(), "decision": words.ravel()}
    pd.DataFrame(columns).to_parquet(place / "p.parquet")
    files = {name: place / "photo's & co" / name for name in images}
    for i, file in enumerate(list(files.values())[:30]):
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (640, 400), (40 * i % 255, 90, 120)).save(file)
    return write_gallery(place / "p.parquet", CLASSES, stated(curve), place / "gallery", files)


def drawn(n):
    return np.random.default_rng(3).random((n, len(CLASSES))).astype(np.float32)


def test_filters_orders_and_names(reader, tmp_path):
    scores = drawn(len(FILES))
    page = reader.open(gallery_of(tmp_path, scores))
    column = scores[:, 1]
    page.select_option("#class", "1")
    page.click(".filter.no")
    order = np.argsort(-column)
    names = names_of(page)
    assert names == [FILES[i] for i in order]
    page.select_option("#sort", "unlikely")
    assert names_of(page) == names[::-1]
    page.select_option("#sort", "name")
    assert names_of(page) == sorted(FILES)
    page.select_option("#sort", "unlikely")
    page.click(".filter.unsure")
    page.keyboard.press("n")
    assert names_of(page) == [FILES[i] for i in order[::-1] if column[i] > 0.6]
    page.click(".filter.unsure")
    page.click(".filter.no")
    page.fill("#search", "ETE")
    reader.until(page, "document.querySelectorAll('.tile').length === 1")
    assert names_of(page) == ["dossier/été 猫.png"]
    assert page.locator("#class option").all_text_contents()[0].startswith(CLASSES[0])

    page.fill("#search", "")
    chances = np.round(stated().present(scores)[:, 1], 4)
    page.locator("#least").fill("45")
    reader.until(page, f"document.querySelectorAll('.tile').length === {(chances >= 0.45).sum()}")
    above = chances[chances >= 0.45]
    assert 0 < len(above) < len(FILES)
    said = (
        f"of all {len(above)} from 45 % on about {above.mean():.0%} show it, which is about {above.sum() / chances.sum():.0%} of"
    )
    assert said.replace("%", " %").replace("45  %", "45 %") in page.text_content("#note").replace("\u00a0", " ")


def test_the_large_picture_is_the_photograph_itself(reader, tmp_path):
    scores = drawn(len(FILES))
    page = reader.open(gallery_of(tmp_path, scores))
    page.click(".filter.no")
    order = [FILES.index(name) for name in names_of(page)]
    assert len(order) == len(FILES)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    for i in order:
        reader.until(page, "document.getElementById('large-picture').naturalWidth === 640")
        assert page.locator("#large-name").text_content() == FILES[i]
        listed = page.locator("#large-classes bdi").all_text_contents()
        assert listed == [CLASSES[c] for c in np.argsort(-scores[i])]
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.className") == "tile"
    (tmp_path / "photo's & co" / FILES[order[-1]]).unlink()  # moved away: the thumbnail is left
    page.reload()
    page.click(".filter.no")
    page.locator(".tile").last.click()
    reader.until(page, "document.getElementById('large-note').textContent !== ''")
    reader.until(page, "document.getElementById('large-picture').naturalWidth === 256")
    reader.complaints.clear()  # the browser names the missing file


def test_twenty_thousand_photographs_make_a_window_of_tiles(reader, tmp_path):
    n = 20_000
    page = reader.open(gallery_of(tmp_path, drawn(n), [f"{i:05d}.png" for i in range(n)]))
    page.click(".filter.no")
    assert "20,000 shown" in page.inner_text("#note")
    counts = []
    for share in (0, 0.3, 0.7, 1):
        page.evaluate("share => scrollTo(0, share * document.documentElement.scrollHeight)", share)
        page.wait_for_timeout(100)
        counts.append(page.locator(".tile").count())
    assert max(counts) < 100
    assert page.locator("#grid li").last.get_attribute("aria-posinset") == str(n)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Home")
    assert page.evaluate("document.activeElement.closest('li').ariaPosInSet") == "1"
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.closest('li').ariaPosInSet") == str(n)
    reader.complaints.clear()  # thumbnails of what was deleted


def test_no_chance_is_rounded_to_a_certainty(reader, tmp_path):
    scores = [0.001, 0.004, 0.5, 0.9949, 0.995, 0.9951]
    page = reader.open(gallery_of(tmp_path, np.repeat(np.float32(scores)[:, None], len(CLASSES), axis=1), curve=None))
    page.keyboard.press("n")
    page.select_option("#sort", "unlikely")
    shown = [text[2:] for text in page.locator(".tile .mark").all_text_contents()]
    assert shown == ["<1 %", "<1 %", "50 %", "99 %", ">99 %", ">99 %"]


def test_answers_are_told_right_from_wrong_by_the_truth(reader, tmp_path, accessible):
    """As `evaluate` writes them; where there is no file, the thumbnail stands for the photograph."""
    answers = np.array([[1, 0, -1], [1, 0, -1], [0, 1, 1], [-1, 1, 0], [1, 1, 1], [0, 0, 0]])
    labels = np.array([[1, 0, 1], [0, 0, 0], [1, 0, 1], [1, 1, 1], [-1, -1, 1], [0, 1, 0]])
    write_predictions(np.array(FILES), 0.5 + answers / 5, answers, labels, tmp_path / "p.parquet")
    page = reader.open(
        write_gallery(
            tmp_path / "p.parquet", CLASSES, stated(), tmp_path / "gallery", {},
            lambda name: Image.new("RGB", (64, 48), (9 * FILES.index(name), 90, 120)),
        )
    )  # fmt: skip
    page.select_option("#class", "0")
    for kind, shown in {"right": [0], "wrong": [1], "missed": [2, 3], "unknown": [4]}.items():
        page.select_option("#answers", kind)
        assert sorted(names_of(page)) == sorted(FILES[i] for i in shown)
        assert set(page.locator(".tile .outcome").all_text_contents()) == {kind}
    for scheme in reader.screens(page):
        assert accessible(page) == [], scheme
    page.locator(".tile").first.click()
    reader.until(page, "document.getElementById('large-picture').naturalWidth === 64")


@pytest.mark.parametrize("curve", [CURVE, None])
def test_a_level_says_the_chance_and_keeps_the_order(curve):
    scores = np.array([0, 1e-5, 0.02, 0.3, 0.5, 0.98, 0.99, 1 - 1e-5, 1])
    levels = levels_of(scores)
    assert levels[0] == 0 and levels[-1] == LEVELS and (np.diff(levels.astype(int)) > 0).all()
    chances = np.array(chances_of_levels(stated(curve)))
    expected = scores if curve is None else np.interp(log_odds(scores), curve.knots, curve.rate)
    assert np.abs(chances[levels] - expected).max() < 1e-3
