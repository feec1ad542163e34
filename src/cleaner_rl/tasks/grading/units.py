r"""Units behind a number (or before it, for money): taken off, and compared where both sides have one.

A unit on one side only says nothing: `5` and `5 cm` are equal. On both sides it has to measure the same thing, and
counts: `5 km` is `5000 m`, not `5 m`. Single letters are units only in `\text{}` or `\mathrm{}`, or behind a space.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

_F = Fraction
_TABLE: dict[str, dict[str, Fraction]] = {
    "length": {
        "mm millimeter millimetre": _F(1, 1000),
        "cm centimeter centimetre": _F(1, 100),
        "dm decimeter": _F(1, 10),
        "m meter metre": _F(1),
        "km kilometer kilometre": _F(1000),
        "inch inches in.": _F(254, 10_000),
        "ft foot feet": _F(3048, 10_000),
        "yd yard": _F(9144, 10_000),
        "mi mile": _F(1_609_344, 1000),
    },
    "mass": {
        "mg milligram": _F(1, 1_000_000),
        "g gram": _F(1, 1000),
        "kg kilogram": _F(1),
        "lb lbs pound": _F(45_359_237, 100_000_000),
        "oz ounce": _F(45_359_237, 1_600_000_000),
        "ton tonne": _F(1000),  # the short ton of the USA is written as ton, too
    },
    "time": {
        "ms millisecond": _F(1, 1000),
        "s sec second": _F(1),
        "min minute": _F(60),
        "h hr hour": _F(3600),
        "day": _F(86_400),
        "week": _F(604_800),
        "month": _F(2_629_800),
        "year yr": _F(31_557_600),
    },
    "volume": {
        "ml mL milliliter millilitre": _F(1, 1_000_000),
        "l L liter litre": _F(1, 1000),
        "gallon": _F(3_785_412, 1_000_000_000),
    },
    "dollar": {"dollar usd USD": _F(1), "cent": _F(1, 100)},
    "euro": {"euro eur EUR": _F(1)},
    "sterling": {"gbp GBP": _F(1)},
    "yen": {"yen": _F(1)},
    "yuan": {"yuan": _F(1)},
    "rupee": {"rupee": _F(1)},
    "angle": {"degree deg °": _F(1), "arcmin '": _F(1, 60)},
    "radian": {"radian rad": _F(1)},
    "celsius": {"°C": _F(1)},
    "fahrenheit": {"°F": _F(1)},
    "kelvin": {"K kelvin": _F(1)},
    "force": {"N newton": _F(1), "kN": _F(1000)},
    "energy": {"J joule": _F(1), "kJ": _F(1000), "MJ": _F(1_000_000)},
    "electronvolt": {"eV": _F(1), "keV": _F(1000), "MeV": _F(1_000_000)},
    "power": {"W watt": _F(1), "kW": _F(1000), "MW": _F(1_000_000)},
    "pressure": {"Pa pascal": _F(1), "kPa": _F(1000), "atm": _F(101_325)},
    "potential": {"V volt": _F(1), "mV": _F(1, 1000), "kV": _F(1000)},
    "current": {"A ampere amp": _F(1), "mA": _F(1, 1000)},
    "resistance": {"ohm Ω": _F(1)},
    "frequency": {"Hz hertz": _F(1), "kHz": _F(1000), "MHz": _F(1_000_000), "GHz": _F(1_000_000_000)},
    "amount": {"mol mole": _F(1), "mmol": _F(1, 1000)},
    "concentration": {"M": _F(1000)},
    "speed": {"mph": _F(44_704, 100_000)},
    "count": {
        "unit": _F(1),
        "people person": _F(1),
        "student": _F(1),
        "way": _F(1),
        "point": _F(1),
        "time": _F(1),
        "page": _F(1),
        "apple": _F(1),
        "book": _F(1),
        "marble": _F(1),
        "coin": _F(1),
        "car": _F(1),
        "ball": _F(1),
        "side": _F(1),
        "solution": _F(1),
        "step": _F(1),
        "game": _F(1),
        "child children": _F(1),
        "boy": _F(1),
        "girl": _F(1),
        "triangle": _F(1),
        "square": _F(1),
        "element": _F(1),
        "pair": _F(1),
    },
}
_DERIVED = {
    "volume": {"length": 3},
    "concentration": {"amount": 1, "length": -3},
    "speed": {"length": 1, "time": -1},
}
"""What is written in other units too: `60 mph` and `60 miles per hour`, `2 M` and `2 mol/L`, `1 L` and `1000 cm^3`."""
UNITS = {
    name: ({f"count:{names}": 1} if dimension == "count" else _DERIVED.get(dimension, {dimension: 1}), factor)
    for dimension, rows in _TABLE.items()
    for names, factor in rows.items()
    for name in names.split()
}

_TEXT = re.compile(r"\\(?:text|textrm|mathrm|mbox|operatorname|rm)\s*\{([^{}]*)\}")
_CIRCLE = re.compile(r"\s*\^\s*\{?\s*\\circ\s*\}?")
_NAME = r"(?:°C|°F|°|'|Ω|[A-Za-z]+\.?)"
_ONE = rf"(?:(?:square|sq\.?|cubic|cu\.?)\s+)?{_NAME}(?:\s*\^\s*\{{?-?\d\}}?)?"
_BEHIND = re.compile(
    rf"(?P<head>.*?[\d)}}%]|.*\\pi)(?P<gap>\s*)(?P<unit>{_ONE}(?:\s*(?:/|\bper\b|\\cdot)\s*{_ONE})?)", re.DOTALL
)
_PARTS = re.compile(r"\s*(?P<by>/|\bper\b|\\cdot)\s*")
_POWERED = re.compile(
    rf"(?:(?P<word>square|sq\.?|cubic|cu\.?)\s+)?(?P<name>{_NAME})(?:\s*\^\s*\{{?(?P<power>-?\d)\}}?)?"
)
_MONEY = {"\\$": "dollar", "$": "dollar", "€": "euro", "£": "sterling", "¥": "¥", "₹": "rupee"}
_YEN_OR_YUAN = [{(("¥", 1),), ((name, 1),)} for name in ("yen", "yuan")]
"""Both currencies are written with ¥."""
_MINUTES = re.compile(r"(\d+)\s*°\s*(\d+(?:\.\d+)?)\s*'")


@dataclass(frozen=True, slots=True)
class Unit:
    """What a unit measures, and how large it is."""

    dimension: tuple[tuple[str, int], ...]
    factor: Fraction

    @property
    def degrees(self) -> bool:
        """Return whether it is the degree of an angle."""
        return self.dimension == (("angle", 1),) and self.factor == 1

    def measures_as(self, other: Unit) -> bool:
        """Return whether both units measure the same thing."""
        return self.dimension == other.dimension or {self.dimension, other.dimension} in _YEN_OR_YUAN


def split_unit(text: str) -> tuple[str, Unit | None]:
    r"""Return a quantity without its unit, and the unit: `5\text{ km}` is `5` and kilometres."""
    for sign, name in _MONEY.items():
        if text.startswith(sign) and len(text) > len(sign):
            return text[len(sign) :].strip(), Unit(((name, 1),), Fraction(1))
        if text.endswith(sign) and len(text) > len(sign):
            return text[: -len(sign)].strip(), Unit(((name, 1),), Fraction(1))
    # A space, so that a letter in \text{} counts as one that is set apart.
    plain = _CIRCLE.sub("°", _TEXT.sub(r" \1", text)).replace("\\,", " ").replace("~", " ").strip()
    plain = re.sub(r"\s+", " ", plain)
    if minutes := _MINUTES.fullmatch(plain):
        whole = Fraction(minutes[1]) + Fraction(minutes[2]) / 60
        return f"{whole.numerator}/{whole.denominator}", Unit((("angle", 1),), Fraction(1))
    match = _BEHIND.fullmatch(plain)
    if not match:
        return text, None
    unit = _unit(match["unit"], alone=not match["gap"])
    if unit is None:
        return text, None
    return match["head"].strip(), unit


def _unit(text: str, alone: bool) -> Unit | None:
    dimension: dict[str, int] = {}
    factor = Fraction(1)
    sign = 1
    for place, part in enumerate(_PARTS.split(text)):
        if place % 2:
            sign = 1 if part == "\\cdot" else -1
            continue
        match = _POWERED.fullmatch(part.strip())
        known = _known(match["name"]) if match else None
        if match is None or known is None or (alone and len(match["name"]) == 1 and match["name"].isalpha()):
            return None
        power = sign * int(match["power"] or {"s": 2, "c": 3}.get((match["word"] or " ")[0], 1))
        for name, exponent in known[0].items():
            dimension[name] = dimension.get(name, 0) + power * exponent
        factor *= known[1] ** power
    return Unit(tuple(sorted((name, power) for name, power in dimension.items() if power)), factor)


def _known(name: str) -> tuple[dict[str, int], Fraction] | None:
    for spelt in (name, name.rstrip("."), name.lower()):
        for each in (spelt, spelt.removesuffix("s")):
            # In lower case only words: 'M' and 'm', 'N' and 'n' are not the same.
            if each in UNITS and (spelt == name or spelt == name.rstrip(".") or len(each) > 2):
                return UNITS[each]
    return None
