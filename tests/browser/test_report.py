"""The report in the browser: tables are sorted, figures enlarged, nothing is loaded."""

from report.test_page import whole

__all__ = ["whole"]  # a fixture


def column(page, number):
    return page.locator(f"#classes tbody tr > :nth-child({number + 1})").all_text_contents()


def test_tables_are_sorted_by_a_click(reader, whole):
    page = reader.open(whole)
    before = column(page, 0)
    heads = page.locator("#classes thead th")
    heads.nth(4).locator("button").click()  # numbers: the largest first
    numbers = [float(text) for text in column(page, 4) if text.strip() not in ("", "–")]
    assert numbers == sorted(numbers, reverse=True) and heads.nth(4).get_attribute("aria-sort") == "descending"
    heads.nth(4).locator("button").press("Enter")
    assert [float(text) for text in column(page, 4) if text.strip() not in ("", "–")] == sorted(numbers)
    heads.nth(0).locator("button").click()
    assert sorted(column(page, 0)) == sorted(before) and heads.nth(4).get_attribute("aria-sort") is None


def test_it_is_accessible(reader, whole, accessible):
    page = reader.open(whole)
    for _ in reader.screens(page):
        assert accessible(page) == []
