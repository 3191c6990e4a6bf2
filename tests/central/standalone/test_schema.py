from central.standalone import schema

SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 8},
                "mode": {"type": "string", "enum": ["hard", "soft"], "default": "soft"},
                "parts": {"type": "array", "items": {"type": "string", "pattern": "^p"}},
                "amounts": {
                    "type": "object",
                    "additionalProperties": {"x-kubernetes-int-or-string": True},
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        }
    },
}


def test_unknown_fields_go_and_defaults_come() -> None:
    given = {
        "kind": "K",
        "metadata": {"name": "x"},
        "spec": {"size": 1, "colour": "red", "free": {"any": {"thing": 1}}, "amounts": {"a": 1}},
        "extra": 1,
    }
    assert schema.prune(SCHEMA, given) == {
        "kind": "K",
        "metadata": {"name": "x"},
        "spec": {"size": 1, "free": {"any": {"thing": 1}}, "amounts": {"a": 1}, "mode": "soft"},
    }


def test_every_fault_is_named_by_its_field() -> None:
    wrong = {"spec": {"size": 9, "mode": "firm", "parts": ["p1", "q"], "amounts": {"a": True}}}
    assert [field for field, _ in schema.faults(SCHEMA, wrong)] == [
        "spec.size",
        "spec.mode",
        "spec.parts[1]",
        "spec.amounts[a]",
    ]
    assert list(schema.faults(SCHEMA, {"spec": {}})) == [("spec.size", "Required value")]
    assert [why for _, why in schema.faults(SCHEMA, {"spec": {"size": True}})] == [
        "Invalid value: True: must be of type integer"
    ]
    assert not list(schema.faults(SCHEMA, {"spec": {"size": 8}}))


def test_conditions_across_fields() -> None:
    choice = {
        "type": "object",
        "oneOf": [{"required": ["a"]}, {"anyOf": [{"required": ["b"]}, {"required": ["c"]}]}],
        "not": {"required": ["b", "d"]},
        "properties": {
            "a": {"type": "integer", "not": {"enum": [0]}},
            "d": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"minLength": 1}},
        },
    }
    for good in ({"a": 1}, {"b": 1}, {"b": 1, "c": 1}, {"c": 1, "d": ["x"]}):
        assert not list(schema.faults(choice, good)), good
    for bad, field in (
        ({}, "<root>"),
        ({"a": 1, "b": 1}, "<root>"),
        ({"b": 1, "d": ["x"]}, "<root>"),
        ({"a": 0}, "a"),
        ({"c": 1, "d": []}, "d"),
        ({"c": 1, "d": ["x"] * 3}, "d"),
        ({"c": 1, "d": [""]}, "d[0]"),
    ):
        assert [where for where, _ in schema.faults(choice, bad)] == [field], bad


def test_a_default_has_defaults_of_its_own() -> None:
    inner = {"type": "object", "default": {}, "properties": {"weight": {"default": 1}}}
    assert schema.prune({"properties": {"spec": inner}}, {}) == {"spec": {"weight": 1}}
