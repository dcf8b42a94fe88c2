import pytest

import labeldp as ldp
from labeldp.data import read_ratings

ROWS = [(196, 242, 3), (186, 302, 5), (22, 377, 1)]
FILES = {
    "u.data": "196\t242\t3\t881250949\n186\t302\t5\t891717742\n22\t377\t1\t878887116\n",
    "ratings.dat": "196::242::3::978300760\n186::302::5::978302109\n22::377::1::978301968\n",
    "ratings.csv": "userId,movieId,rating,timestamp\n196,242,3.0,96\n186,302,5.0,97\n22,377,1.0,98\n",
}


@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_the_same_rows(tmp_path, name):
    (tmp_path / name).write_text(FILES[name])
    frame = read_ratings(tmp_path / name)
    assert frame.columns == ["user", "item", "rating"]
    assert frame.rows() == ROWS
    assert frame["rating"].dtype.is_integer()


def test_half_stars_stay_fractions(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text("userId,movieId,rating,timestamp\n1,2,3.5,0\n1,3,4.0,0\n")
    assert read_ratings(path)["rating"].to_list() == [3.5, 4.0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("u.data", "1\t2\tsecret\t0\n"),
        ("u.data", "1\t2\n"),
        ("u.data", ""),
        ("ratings.dat", "1::2::secret::0\n"),
        ("ratings.dat", "1::2\n"),
        ("ratings.dat", ""),
        ("ratings.csv", "userId,movieId,rating,timestamp\n1,2,secret,0\n"),
        ("ratings.csv", "userId,movieId,rating,timestamp\n1,2,,0\n"),
        ("ratings.csv", "userId,movieId,rating,timestamp\n"),
    ],
)
def test_a_damaged_file_is_refused_without_a_word_of_its_ratings(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(ldp.InputError, match="damaged or holds no ratings") as refused:
        read_ratings(tmp_path / name)
    assert "secret" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None


def test_other_files_are_refused(tmp_path):
    with pytest.raises(ldp.InputError, match="There is no file"):
        read_ratings(tmp_path / "u.data")
    (tmp_path / "ratings.xlsx").write_text("")
    with pytest.raises(ldp.InputError, match="not named as MovieLens"):
        read_ratings(tmp_path / "ratings.xlsx")
