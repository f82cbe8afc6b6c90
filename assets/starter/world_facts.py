"""The starter's world: a small closed set of facts, as tables.

Everything that the built-in model can know stands here: instruments, woods, tools, colours, animals, days, months and
sums up to 20. ``world_questions`` asks about it, ``world_stories`` tells of it. Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "ANIMALS", "COLOURED", "DAYS", "INSTRUMENTS", "MIXES", "MONTHS", "OPPOSITES", "OUTSIDE", "REPAIRS", "SEASONS",
    "TOOLS", "WOODS", "Animal", "Instrument", "Tool", "Wood",
]  # fmt: skip


@dataclass(frozen=True)
class Instrument:
    """``top``, ``back`` and ``strings`` are empty where the instrument has none."""

    name: str
    family: str
    played: str
    sound: str
    strings: str = ""
    top: str = ""
    back: str = ""


@dataclass(frozen=True)
class Wood:
    """A wood on the shelf: ``use`` fits "is used for"."""

    name: str
    colour: str
    hardness: str
    use: str


@dataclass(frozen=True)
class Tool:
    """``job`` fits "is used for", ``doing`` fits "I want to", ``place`` fits "is kept"."""

    name: str
    job: str
    doing: str
    place: str


@dataclass(frozen=True)
class Animal:
    """``says`` is the sound, ``home`` fits "lives", ``young`` is the young one's name."""

    name: str
    says: str
    legs: str
    home: str
    eats: str
    young: str


def _rows(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


INSTRUMENTS = tuple(
    Instrument(*row)
    for row in _rows("""
    violin      | string     | with a bow           | bright and singing  | four        | spruce   | maple
    viola       | string     | with a bow           | dark and gentle     | four        | spruce   | maple
    cello       | string     | with a bow           | deep and warm       | four        | spruce   | maple
    double bass | string     | with a bow           | very deep           | four        | spruce   | poplar
    guitar      | string     | with the fingers     | round and warm      | six         | cedar    | rosewood
    lute        | string     | with the fingers     | soft and old        | fifteen     | spruce   | yew
    harp        | string     | with the fingers     | clear and floating  | forty-seven | spruce   | beech
    mandolin    | string     | with a pick          | sweet and quick     | eight       | spruce   | walnut
    banjo       | string     | with a pick          | sharp and merry     | five
    ukulele     | string     | with the fingers     | light and merry     | four        | mahogany | mahogany
    balalaika   | string     | with the fingers     | crisp and quick     | three       | spruce   | birch
    lyre        | string     | with a pick          | thin and old        | seven       | cedar    | cherry
    flute       | woodwind   | with the breath      | clear and airy
    oboe        | woodwind   | with the breath      | thin and sad
    clarinet    | woodwind   | with the breath      | smooth and dark
    bassoon     | woodwind   | with the breath      | deep and funny
    recorder    | woodwind   | with the breath      | plain and sweet
    trumpet     | brass      | with the breath      | loud and shining
    trombone    | brass      | with the breath      | broad and loud
    tuba        | brass      | with the breath      | very low and round
    horn        | brass      | with the breath      | golden and far
    drum        | percussion | with sticks          | loud and dry
    triangle    | percussion | with a small rod     | high and ringing
    xylophone   | percussion | with mallets         | hard and bright
    piano       | keyboard   | with the fingers     | full and clear
    organ       | keyboard   | with hands and feet  | wide and mighty
    """)
)

WOODS = tuple(
    Wood(*row)
    for row in _rows("""
    spruce   | pale yellow  | soft | tops
    maple    | pale         | hard | backs and necks
    ebony    | black        | hard | fingerboards
    rosewood | dark brown   | hard | backs and bridges
    cedar    | red brown    | soft | guitar tops
    mahogany | warm brown   | hard | necks and backs
    walnut   | grey brown   | hard | backs and sides
    willow   | white        | soft | linings and blocks
    boxwood  | yellow       | hard | pegs
    cherry   | rosy brown   | hard | sides and frames
    pine     | light yellow | soft | boxes and braces
    birch    | cream        | hard | ribs and plywood
    yew      | orange brown | hard | lute backs
    poplar   | green white  | soft | bass backs
    """)
)

TOOLS = tuple(
    Tool(*row)
    for row in _rows("""
    plane        | smoothing wood           | smooth wood           | on the long shelf
    saw          | cutting wood             | cut wood              | on the wall
    chisel       | carving joints           | carve joints          | in the top drawer
    gouge        | hollowing a plate        | hollow a plate        | in the top drawer
    scraper      | finishing a plate        | finish a plate        | in the small box
    clamp        | holding glued parts      | hold glued parts      | under the bench
    file         | shaping metal            | shape metal           | in the middle drawer
    knife        | cutting the bridge       | cut the bridge        | in the leather roll
    caliper      | measuring thickness      | measure thickness     | in the small box
    ruler        | measuring length         | measure length        | by the window
    brush        | spreading varnish        | spread varnish        | in the glass jar
    hammer       | driving nails            | drive nails           | on the wall
    drill        | making holes             | make holes            | in the big chest
    bending iron | bending ribs             | bend ribs             | near the stove
    glue pot     | warming glue             | warm glue             | on the stove
    tuning fork  | finding the right pitch  | find the right pitch  | by the door
    reamer       | widening peg holes       | widen peg holes       | in the bottom drawer
    mallet       | striking the chisel      | strike the chisel     | under the bench
    """)
)

ANIMALS = tuple(
    Animal(*row)
    for row in _rows("""
    cow      | moo        | four  | in a barn       | grass         | calf
    dog      | woof       | four  | in a kennel     | meat          | puppy
    cat      | meow       | four  | in a house      | fish          | kitten
    sheep    | baa        | four  | on a farm       | grass         | lamb
    horse    | neigh      | four  | in a stable     | hay           | foal
    pig      | oink       | four  | in a sty        | turnips       | piglet
    duck     | quack      | two   | on a pond       | bread         | duckling
    hen      | cluck      | two   | in a coop       | corn          | chick
    owl      | hoot       | two   | in a hollow tree | mice         | owlet
    frog     | croak      | four  | by a pond       | flies         | tadpole
    bee      | buzz       | six   | in a hive       | nectar        | larva
    lion     | roar       | four  | in the savanna  | meat          | cub
    goat     | bleat      | four  | on a hill       | leaves        | kid
    goose    | honk       | two   | on a lake       | grass         | gosling
    mouse    | squeak     | four  | in a hole       | cheese        | pup
    crow     | caw        | two   | in a nest       | seeds         | fledgling
    donkey   | hee-haw    | four  | in a stable     | thistles      | foal
    wolf     | howl       | four  | in a den        | meat          | pup
    snake    | hiss       | no    | under a stone   | eggs          | snakelet
    cricket  | chirp      | six   | in the grass    | leaves        | nymph
    """)
)

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
SEASONS = dict(zip(MONTHS, ("winter",) * 2 + ("spring",) * 3 + ("summer",) * 3 + ("autumn",) * 3 + ("winter",)))  # noqa: B905

MIXES = (
    ("red", "yellow", "orange"), ("blue", "yellow", "green"), ("red", "blue", "purple"), ("red", "white", "pink"),
    ("black", "white", "grey"), ("red", "green", "brown"), ("blue", "white", "light blue"),
    ("green", "white", "light green"), ("black", "red", "dark red"), ("orange", "white", "peach"),
)  # fmt: skip
COLOURED = {
    "the sky": "blue", "grass": "green", "snow": "white", "coal": "black", "a lemon": "yellow", "blood": "red",
    "a carrot": "orange", "a plum": "purple", "honey": "golden", "ash": "grey", "chocolate": "brown",
    "a cherry": "red", "milk": "white", "a leaf": "green", "the sea": "blue", "the night": "black", "a rose": "red",
    "butter": "yellow", "a crow": "black", "a swan": "white",
}  # fmt: skip
OPPOSITES = (
    ("hot", "cold"), ("big", "small"), ("high", "low"), ("loud", "quiet"), ("fast", "slow"), ("hard", "soft"),
    ("light", "heavy"), ("old", "new"), ("wet", "dry"), ("open", "closed"), ("long", "short"), ("thick", "thin"),
    ("rough", "smooth"), ("full", "empty"), ("early", "late"), ("near", "far"), ("day", "night"), ("up", "down"),
)  # fmt: skip

REPAIRS = {
    "a string breaks": "Take the old string off and put a new string on.",
    "a peg slips": "Rub a little chalk on the peg and press it in.",
    "the bridge leans": "Loosen the strings and set the bridge upright.",
    "the top has a crack": "Warm the glue, close the crack and clamp it for a day.",
    "the bow is too smooth": "Rub more rosin on the hair of the bow.",
    "the glue is too thick": "Add a little warm water and stir the glue.",
    "the wood is wet": "Let the wood dry before you cut it.",
    "the saw is dull": "File every tooth of the saw until it is sharp.",
    "the chisel is dull": "Sharpen the chisel on the fine stone.",
    "the varnish is sticky": "Wait three more days and keep the dust away.",
    "the neck is loose": "Clean the joint and glue the neck again.",
    "a seam is open": "Clean the seam, glue it and clamp it.",
}

OUTSIDE = (
    "What is the capital of France?", "Who wrote the first novel?", "How far away is the moon?", "What is a computer?",
    "How do I bake a cake?", "Who won the game?", "What is the weather today?", "How old is the king?",
    "Where can I buy a car?", "What is love?", "How do planes fly?", "What is the best film?", "Who is the president?",
    "How many people live in China?", "What is electricity?", "Can you write a program?", "What is 300 times 12?",
    "What time is it?", "How do I learn French?", "What is the tallest mountain?", "What is money?",
    "Where is the station?", "How does a phone work?", "What is the longest river?", "Who painted this picture?",
    "What is in the news?", "How do I cook rice?", "What is the meaning of life?", "Who invented the wheel?",
    "How big is the sun?",
)  # fmt: skip
