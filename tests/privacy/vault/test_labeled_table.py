import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import labeldp as ldp
from labeldp.data.files import TableFile
from labeldp.privacy.vault.labeled_table import SecretTable, budget_chooser, check_total_budget, encode_user_columns

N = 40


def write(tmp_path, labels, name="t.parquet", **columns):
    frame = pl.DataFrame({"x": np.arange(len(labels)), **columns, "y": labels})
    path = tmp_path / name
    frame.write_csv(path) if name.endswith(".csv") else frame.write_parquet(path)
    return path


@pytest.mark.parametrize(
    ("labels", "classes", "expected"),
    [
        (["no", "yes"], "no,yes", ("no", "yes")),
        ([0, 1], "0, 1", (0, 1)),
        ([0.0, 1.0], "0,1", (0, 1)),
        ([False, True], "false,true", (False, True)),
        (pl.Series(["a", "b"], dtype=pl.Categorical), "a,b", ("a", "b")),
    ],
)
def test_classes_are_read_in_the_type_of_the_column(tmp_path, labels, classes, expected):
    table = SecretTable.open(write(tmp_path, labels), "y", classes)
    assert table.space.classes == expected
    vault = table.vault(50.0)
    assert vault.release(ldp.RandomizedResponse(50.0)).labels().tolist() == [0, 1]


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
@pytest.mark.parametrize("labels", [["no", "yes", None], [0, 1, None], [True, False, None]])
def test_released_codes_take_the_place_of_labels(tmp_path, name, labels):
    if name == "t.csv":
        labels = [None if value is None else str(value) for value in labels]
    path = write(tmp_path, labels, name)
    words = sorted({str(value) for value in labels if value is not None})
    table = SecretTable.open(path, "y", ",".join(words), "public")
    batch = next(iter(table.file.batches()))
    codes = table.vault(50.0).release(ldp.RandomizedResponse(50.0)).labels()
    swapped = table.replace_labels(batch, np.where(codes < 0, -1, 1 - codes))
    assert swapped.schema == batch.schema
    assert swapped.column("y").to_pylist() == [labels[1], labels[0], None]


def test_a_categorical_column_stays_categorical(tmp_path):
    path = write(tmp_path, pl.Series(["a", "b", "a"], dtype=pl.Categorical))
    table = SecretTable.open(path, "y", "a,b")
    batch = next(iter(table.file.batches()))
    swapped = table.replace_labels(batch, np.array([1, 0, 1], np.int8))
    assert pa.types.is_dictionary(swapped.schema.field("y").type)
    assert swapped.column("y").to_pylist() == ["b", "a", "b"]


def test_classes_may_hold_commas_and_spaces(tmp_path):
    path = write(tmp_path, ["a, or b", " c"])
    assert SecretTable.open(path, "y", '"a, or b"," c"').space.classes == ("a, or b", " c")
    with pytest.raises(ldp.InputError, match="extra comma"):
        SecretTable.open(path, "y", "a,,b")
    assert SecretTable.open(write(tmp_path, [0.0, 1.0]), "y", "0.0,1.0").space.classes == (0, 1)


def test_the_ledger_lies_beside_the_data_and_its_budget_stays(tmp_path):
    path = write(tmp_path, ["no", "yes"] * N)
    table = SecretTable.open(path, "y", "no,yes")
    table.vault(1.0).release(ldp.RandomizedResponse(1.0))
    assert (tmp_path / "t.parquet.ledger").is_file()
    later = table.vault(0.5)
    assert (later.budget.epsilon, later.guarantee().epsilon) == (1.0, 1.0)
    with pytest.raises(ldp.BudgetExceeded):
        later.release(ldp.RandomizedResponse(0.5))
    assert table.vault(0.5, budget=2.0).budget.epsilon == 2.0


def test_one_changed_label_opens_the_same_ledger_and_one_changed_feature_does_not(tmp_path):
    path = write(tmp_path, ["no", "yes"] * N)
    SecretTable.open(path, "y", "no,yes").vault(1.0).release(ldp.RandomizedResponse(1.0))
    write(tmp_path, ["yes", "yes"] + ["no", "yes"] * (N - 1))
    assert SecretTable.open(path, "y", "no,yes").vault(1.0).guarantee().epsilon == 1.0
    write(tmp_path, ["no", "yes"] * N, x=np.arange(2 * N) + 1)
    with pytest.raises(ldp.LedgerError, match="belongs to other data"):
        SecretTable.open(path, "y", "no,yes").vault(1.0)


def test_row_ids_can_identify_the_data_and_are_no_feature(tmp_path):
    path = write(tmp_path, ["no", "yes"] * N, extra=np.zeros(2 * N))
    table = SecretTable.open(path, "y", "no,yes", id_column="x")
    assert table.feature_columns == ["extra"]
    table.vault(1.0)
    write(tmp_path, ["no", "yes"] * N, extra=np.ones(2 * N))
    SecretTable.open(path, "y", "no,yes", id_column="x").vault(1.0)
    with pytest.raises(ldp.InputError, match="no column 'id'"):
        SecretTable.open(path, "y", "no,yes", id_column="id")
    with pytest.raises(ldp.InputError, match="The label cannot identify"):
        SecretTable.open(path, "y", "no,yes", id_column="y")


def test_nothing_but_a_total_changes_the_budget(tmp_path):
    table = SecretTable.open(write(tmp_path, ["no", "yes"] * N), "y", "no,yes")
    assert table.vault(1.0).budget == ldp.Budget(1.0, 0.0)
    assert table.vault(0.7, 1e-6).budget == ldp.Budget(0.7, 1e-6)  # nothing was spent yet
    table.vault(1.0).release(ldp.RandomizedResponse(0.5))
    assert table.vault(2.0, 1e-6).budget == ldp.Budget(1.0, 0.0)
    assert table.vault(2.0, 1e-6, delta_budget=1e-5).budget == ldp.Budget(1.0, 1e-5)
    assert table.vault(2.0, budget=3.0).budget == ldp.Budget(3.0, 1e-5)
    assert budget_chooser(0.5, 1e-6)(None) == ldp.Budget(0.5, 1e-6)
    assert budget_chooser(0.5)(ldp.Budget(3.0, 1e-5)) == ldp.Budget(3.0, 1e-5)


def test_public_codes_are_those_of_the_declared_classes(tmp_path):
    for name in ("t.csv", "t.parquet"):
        table = SecretTable.open(write(tmp_path, ["b", "a", "b"], name), "y", "a,b")
        assert table.read_public_codes().tolist() == [1, 0, 1]
        assert not table.default_ledger_path.exists()


def test_bad_tables_make_no_ledger(tmp_path):
    path = write(tmp_path, ["no"] * 30 + ["maybe"])
    with pytest.raises(ldp.InputError, match="first in row 30") as caught:
        SecretTable.open(path, "y", "no,yes").vault(1.0)
    assert "maybe" not in str(caught.value)
    assert not (tmp_path / "t.parquet.ledger").exists()
    with pytest.raises(ldp.InputError, match="no rows"):
        SecretTable.open(write(tmp_path, pl.Series([], dtype=pl.String)), "y", "no,yes").vault(1.0)
    pl.DataFrame({"y": ["no"]}).write_parquet(tmp_path / "only.parquet")
    with pytest.raises(ldp.InputError, match="no column but the label"):
        SecretTable.open(tmp_path / "only.parquet", "y", "no,yes").vault(1.0)
    with pytest.raises(ldp.InputError, match="holds numbers"):
        SecretTable.open(write(tmp_path, [1, 2]), "y", "one,two")
    with pytest.raises(ldp.InputError, match="holds booleans"):
        SecretTable.open(write(tmp_path, [True, False]), "y", "0,1")


def test_owners_are_one_if_their_values_are_equal():
    assert encode_user_columns([pa.array([0.0, -0.0]), pa.array([1.5, -0.0])]).tolist() == [0, 0, 1, 0]
    twice = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array(["a", "a"]))
    assert encode_user_columns([twice]).tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_another_secret_of_the_same_people_is_left_out(tmp_path, name):
    path = write(tmp_path, ["no", "yes"] * N, name, ill=["a", "b", "b", "a"] * (N // 2))
    SecretTable.open(path, "ill", "a,b", excluded_columns=["y"]).vault(1.0).release(ldp.RandomizedResponse(1.0))
    with pytest.raises(ldp.InputError, match=r"counts column 'ill' as a secret label.*exclude the column") as refusal:
        SecretTable.open(path, "y", "no,yes").vault(1.0)
    assert refusal.value.parameter == "excluded_columns"
    table = SecretTable.open(path, "y", "no,yes", excluded_columns=["ill"])
    assert table.feature_columns == ["x"]
    vault = table.vault(1.0, budget=2.0)
    vault.release(ldp.RandomizedResponse(1.0))
    codes = np.zeros(2 * N, np.int8)
    table.file.rewrite(
        tmp_path / f"out.{name[2:]}",
        lambda b: table.replace_labels(b, codes[: b.num_rows]),
        "y",
        {},
        table.included_columns,
    )
    assert TableFile(tmp_path / f"out.{name[2:]}").schema.names == ["x", "y"]
    write(tmp_path, ["no", "yes"] * N, name, ill=["a"] * (2 * N))  # what is left out has no part in the data's identity
    assert table.vault(1.0).guarantee().epsilon == 2.0
    for column in ("y", "nothing"):
        with pytest.raises(ldp.InputError, match=column):
            SecretTable.open(path, "y", "no,yes", excluded_columns=[column])


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_all_secrets_of_a_file_share_one_ledger_and_add_up(tmp_path, name):
    """A second secret could be released under any number of ledgers, each of which stated its own cost alone."""
    path = write(tmp_path, ["no", "yes"] * N, name, ill=["a", "b", "b", "a"] * (N // 2))
    SecretTable.open(path, "y", "no,yes").vault(1.0).release(ldp.RandomizedResponse(0.5))
    other = SecretTable.open(path, "ill", "a,b", excluded_columns=["y"])
    for number in range(4):
        with pytest.raises(ldp.InputError, match="another ledger would forget it"):
            other.vault(1.0, ledger=tmp_path / f"{number}.ledger")
    with pytest.raises(ldp.BudgetExceeded, match=r"epsilon 0\.5 and delta 0 left.*all labels of these rows \(y, ill\)"):
        other.vault(1.0).release(ldp.RandomizedResponse(0.6))
    drawn = other.vault(1.0).release(ldp.RandomizedResponse(0.5))
    first = (
        SecretTable.open(path, "y", "no,yes", excluded_columns=["ill"]).vault(1.0).release(ldp.RandomizedResponse(0.5))
    )
    assert first.entry != drawn.entry
    assert other.vault(1.0).guarantee().epsilon == 1.0
    with pytest.raises(ldp.BudgetExceeded, match=r"all labels of these rows \(y, ill\)"):
        other.vault(1.0).release(ldp.RandomizedResponse(0.1))


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_a_secret_that_is_found_later_can_be_left_out_and_stays_out(tmp_path, name):
    path = write(tmp_path, ["no", "yes"] * N, name, ill=["a", "b", "b", "a"] * (N // 2))
    SecretTable.open(path, "y", "no,yes").vault(1.0).release(ldp.RandomizedResponse(0.5))
    left = SecretTable.open(path, "y", "no,yes", excluded_columns=["ill"])
    assert left.vault(1.0).guarantee().epsilon == 0.5  # the same people, with fewer features
    SecretTable.open(path, "ill", "a,b", excluded_columns=["y"]).vault(1.0).release(ldp.RandomizedResponse(0.1))
    with pytest.raises(ldp.InputError, match=r"counts column 'ill' as a secret label.*exclude the column\.$"):
        SecretTable.open(path, "y", "no,yes").vault(1.0)
    assert left.vault(1.0).guarantee().epsilon == 0.6


def test_a_file_with_several_hard_links_needs_a_named_ledger(tmp_path):
    """Each name would have a ledger of its own beside it."""
    path = write(tmp_path, ["no", "yes"] * N)
    SecretTable.open(path, "y", "no,yes").vault(1.0).release(ldp.RandomizedResponse(1.0))
    (tmp_path / "other").mkdir()
    link = tmp_path / "other" / "linked.parquet"
    link.hardlink_to(path)
    for each in (path, link):
        with pytest.raises(
            ldp.InputError, match=r"several names \(hard links\).*name one ledger for all of them"
        ) as refusal:
            SecretTable.open(each, "y", "no,yes").vault(1.0)
        assert refusal.value.parameter == "ledger"
        named = SecretTable.open(each, "y", "no,yes").vault(1.0, ledger=tmp_path / "t.parquet.ledger")
        assert named.guarantee().epsilon == 1.0
    assert not (tmp_path / "other" / "linked.parquet.ledger").exists()


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_rows_that_were_sorted_anew_are_not_taken_for_those_of_before(tmp_path, name):
    """Without the column by which they were sorted, nobody sees it: what one person lost would be another's."""
    path = write(tmp_path, ["no", "yes"] * N, name, seen=["x"] * (2 * N))
    SecretTable.open(path, "y", "no,yes").vault(1.0).release(ldp.RandomizedResponse(0.5))
    for column in ("x", "seen"):
        read = pl.read_parquet if name.endswith("parquet") else pl.read_csv
        frame = read(path).reverse()
        left = SecretTable.open(_written(frame, path), "y", "no,yes", excluded_columns=[column])
        with pytest.raises(ldp.LedgerError, match="belongs to other data"):
            left.vault(1.0)
        _written(frame.drop(column), path)
        with pytest.raises(ldp.InputError, match=f"identifies the rows by column '{column}', too, which {name} lacks"):
            SecretTable.open(path, "y", "no,yes").vault(1.0)
        _written(frame.reverse(), path)
    assert SecretTable.open(path, "y", "no,yes").vault(1.0).guarantee().epsilon == 0.5


def _written(frame, path):
    (frame.write_parquet if path.suffix == ".parquet" else frame.write_csv)(path)
    return path


def test_a_number_that_is_marked_as_missing_is_missing(tmp_path):
    path = write(tmp_path, ["1", "NaN", "3", "NA"], "t.csv")
    with pytest.raises(ldp.InputError, match="A label is missing, first in row 1"):
        SecretTable.open(path, "y", None, label_range="0,5,1").vault(1.0)
    vault = SecretTable.open(path, "y", None, "public", label_range="0,5,1").vault(1.0)
    assert vault.labeled_mask.tolist() == [True, False, True, False]


def test_a_link_leads_to_the_ledger_of_the_data(tmp_path):
    path = write(tmp_path, ["no", "yes"] * N, "t.csv")
    SecretTable.open(path, "y", "no,yes").vault(1.0).release(ldp.RandomizedResponse(0.5))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "link.csv").symlink_to(path)
    assert SecretTable.open(tmp_path / "elsewhere" / "link.csv", "y", "no,yes").vault(1.0).guarantee().epsilon == 0.5


def test_a_ledger_may_be_a_link_and_one_beside_a_link_is_not_forgotten(tmp_path):
    path = write(tmp_path, ["no", "yes"] * N, "t.csv")
    (tmp_path / "safe").mkdir()
    (tmp_path / "t.csv.ledger").symlink_to(tmp_path / "safe" / "my.ledger")
    SecretTable.open(path, "y", "no,yes").vault(1.0).release(ldp.RandomizedResponse(0.5))
    assert SecretTable.open(path, "y", "no,yes").vault(1.0).guarantee().epsilon == 0.5
    (tmp_path / "link.csv").symlink_to(path)
    (tmp_path / "link.csv.ledger").write_bytes((tmp_path / "safe" / "my.ledger").read_bytes())
    with pytest.raises(ldp.InputError, match="lies beside a link to the data"):
        SecretTable.open(tmp_path / "link.csv", "y", "no,yes").vault(1.0)


def test_another_ledger_cannot_forget_what_the_one_beside_the_data_counts(tmp_path):
    path = write(tmp_path, ["no", "yes"] * N)
    table = SecretTable.open(path, "y", "no,yes")
    table.vault(1.0)
    table.vault(1.0, ledger=tmp_path / "other").release(ldp.RandomizedResponse(1.0))  # nothing was spent yet
    table.vault(1.0, ledger=table.default_ledger_path).release(ldp.RandomizedResponse(1.0))
    with pytest.raises(ldp.InputError, match="another ledger would forget it"):
        table.vault(1.0, ledger=tmp_path / "other")


def test_a_total_that_could_never_pay_is_refused():
    with pytest.raises(ldp.BudgetExceeded, match="This costs epsilon 20, and the budget shall be 7 in all"):
        check_total_budget(20.0, 7.0)
    for total in (None, 20.0, 30.0):
        check_total_budget(20.0, total)
