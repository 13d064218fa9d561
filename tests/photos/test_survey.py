"""What `init-data` says of a folder before anything is trained on it."""

import tiny

from dicap.photos.survey import survey
from dicap.settings import Own


def test_it_counts_and_names_what_may_go_wrong(tmp_path):
    tiny.photographs(tmp_path, {"train": 3, "test": 1})
    rows = ["train-000.png,train," + ";".join(f"class {i:02d}" for i in range(10)), "train-001.png,train,Cat;dog"]
    rows += ["train-002.png,train,cat", "test-000.png,test,class 00"]
    (tmp_path / "labels.csv").write_text("\n".join(["image,split,labels", *rows]))
    found, _ = survey(tmp_path, Own())
    assert found.counts["train"] == 3 and found.counts["test"] == 1 and found.counts["unlabeled"] == 0
    assert ("class 00", 1, 1) in found.classes and ("dog", 1, 0) in found.classes and len(found.classes) == 13
    said = "\n".join(found.problems)
    assert "classes with fewer than 10 labelled training images (13): " in said and said.count(" and 5 more") == 1
    assert "classes without a test image, of whose score nothing can be said (12): " in said and said.count(" and 4 more") == 1
    assert found.ratio[0] == 0.5 and "no image is unlabelled" in found.ratio[1]
    assert "only 3 labelled training images" in said
    assert "classes that look alike or differ in capitals only: 'Cat' and 'cat'" in said
