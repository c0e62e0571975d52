"""List the data sets: what they hold, the forms they are read in, and their canonical homes with checksums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from sottovoce.core.registry import Registry
from sottovoce.data import adult, cifar, hospital, images, imdb
from sottovoce.data.dataset import Dataset
from sottovoce.data.dead_leaves import LEAVES, leaves
from sottovoce.data.premier import FEATURES, PREMIER, TEST, TRAIN, premier


@dataclass(frozen=True)
class Form:
    """Files, below one folder, that a reader takes; a reader of one file gets its path, else the folder's."""

    files: tuple[str, ...]
    read: Callable[[Path], Dataset]
    records: tuple[int, int] | None = None  # train and test, where a form holds other records than the whole set


@dataclass(frozen=True)
class Remote:
    """Address at which a file is published, and its SHA-256.

    With `inside`, the address is that of a zip file, and the checksum that of the one member that is kept.
    """

    url: str
    file: str
    sha256: str
    size: int
    inside: str | None = None


@dataclass(frozen=True)
class Source:
    """Description of one published data set; the name is the one under which it is registered.

    A set without files is computed by `make`, from nothing but the package that it is in or a seed.
    """

    name: str
    records: tuple[int, int]
    shape: tuple[int, ...]
    classes: int
    licence: str
    forms: tuple[Form, ...] = ()
    make: Callable[[], Dataset] | None = None
    home: str = "embedded"  # where the records of `make` are, in one word
    folders: tuple[str, ...] = ()  # where the forms may lie below a data folder, besides itself and `name`
    system: Path | None = None
    package: str | None = None
    remotes: tuple[Remote, ...] = ()
    by_hand: str = ""


def _idx(name: str) -> tuple[Form, ...]:
    read = partial(images.read_idx_folder, name)
    return Form(tuple(f"{file}.gz" for file in images.IDX), read), Form(images.IDX, read)


def _idx_remotes(home: str, *files: tuple[str, int]) -> tuple[Remote, ...]:
    return tuple(
        Remote(f"{home}/{name}.gz", f"{name}.gz", sha256, size)
        for name, (sha256, size) in zip(images.IDX, files, strict=True)
    )


DIGITS: Final = Source(
    "digits",
    (1438, 359),
    (8, 8, 1),
    10,
    "CC BY 4.0 (UCI, Alpaydin and Kaynak), in this package",
    make=images.read_digits,
)
MNIST: Final = Source(
    "mnist",
    (60000, 10000),
    (28, 28, 1),
    10,
    "LeCun and Cortes; CC BY-SA 3.0",
    forms=(Form(("mnist.npz",), partial(images.read_images, "mnist", classes=10)), *_idx("mnist")),
    folders=("MNIST/raw",),
    # Checksums: tensorflow/datasets, url_checksums/mnist.txt.
    remotes=_idx_remotes(
        "https://storage.googleapis.com/cvdf-datasets/mnist",
        ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9912422),
        ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28881),
        ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1648877),
        ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4542),
    ),
)
FASHION_MNIST: Final = Source(
    "fashion-mnist",
    (60000, 10000),
    (28, 28, 1),
    10,
    "Zalando; MIT",
    forms=(
        Form(("fashion_mnist.npz",), partial(images.read_images, "fashion-mnist", classes=10)),
        *_idx("fashion-mnist"),
    ),
    folders=("FashionMNIST/raw",),
    system=Path("/usr/share/datasets/fashion-mnist"),
    package="dataset-fashion-mnist",
    # Checksums: tensorflow/datasets, url_checksums/fashion_mnist.txt.
    remotes=_idx_remotes(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        ("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26421880),
        ("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29515),
        ("346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4422102),
        ("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5148),
    ),
)
CIFAR10: Final = Source(
    "cifar10",
    (50000, 10000),
    (32, 32, 3),
    10,
    "Krizhevsky; no licence stated, cite the report",
    # Whole archives come before the packed tenth: a user who has both wants the whole.
    forms=(
        Form(("cifar-10-binary.tar.gz",), cifar.read_archive),
        Form(cifar.BINARY, cifar.read_folder),
        Form(("cifar-10-python.tar.gz",), cifar.read_archive),
        Form(cifar.PICKLED, cifar.read_folder),
        Form(("cifar10_10k.npz",), partial(images.read_images, "cifar10", classes=10), records=(10000, 2000)),
    ),
    # The binary archive, because it holds no pickles. Checksum: tensorflow/datasets, url_checksums/cifar10.txt.
    remotes=(
        Remote(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "cifar-10-binary.tar.gz",
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            170052171,
        ),
    ),
)
IMDB: Final = Source(
    "imdb",
    (25000, 25000),
    (imdb.LENGTH,),
    2,
    "Maas et al. 2011; no licence stated, cite the paper",
    forms=(Form(("imdb.npz",), imdb.read_packed), Form(("aclImdb_v1.tar.gz",), imdb.read_archive)),
    # Checksum: tensorflow/datasets, url_checksums/imdb_reviews.txt.
    remotes=(
        Remote(
            "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
            "aclImdb_v1.tar.gz",
            "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
            84125825,
        ),
    ),
)
LFW: Final = Source(
    "lfw",
    (10855, 2378),
    (62, 47, 1),
    2,
    "Labeled Faces in the Wild; the photos carry no licence",
    forms=(Form(("lfw_rgb62x47.npz",), images.read_lfw), Form(("lfw_gray62x47.npz",), images.read_lfw)),
    by_hand="LFW publishes photos without the gender labels; pack them into lfw_gray62x47.npz, or in colour into "
    "lfw_rgb62x47.npz, as docs/data.md says",
)
FAIRFACE: Final = Source(
    "fairface",
    (20000, 5000),
    (32, 32, 1),
    2,
    "FairFace; CC BY 4.0",
    forms=(Form(("fairface_gray32_25k.npz",), images.read_fairface),),
    by_hand="FairFace is given out by a web form only; pack it into fairface_gray32_25k.npz as docs/data.md says",
)
DIABETES130: Final = Source(
    "diabetes130",
    (31193, 7798),
    (206,),
    2,
    "UCI 296, Clore et al.; CC BY 4.0",
    forms=tuple(
        Form((file,), hospital.read_diabetes130)
        for file in (
            *("diabetes130.csv.xz", "diabetic_data.csv", "dataset_diabetes/diabetic_data.csv"),
            *("dataset_diabetes.zip", "diabetes+130-us+hospitals+for+years+1999-2008.zip"),
        )
    ),
    # The checksum is the table's: seven public copies are equal byte for byte; that of the zip was never published.
    remotes=(
        Remote(
            "https://archive.ics.uci.edu/static/public/296/diabetes+130-us+hospitals+for+years+1999-2008.zip",
            "diabetic_data.csv",
            "0689e7ec031237dc63031b938805c48377748761a3b26acab621567afa24df97",
            19159383,
            inside="diabetic_data.csv",
        ),
    ),
)
ADULT: Final = Source(
    "adult",
    (39074, 9768),
    (88,),
    2,
    "UCI 2, Becker and Kohavi; CC BY 4.0",
    forms=(Form(("adult.csv.xz",), adult.read_packed), Form(adult.ORIGINALS, adult.read_originals)),
    # Checksums: tensorflow/datasets, url_checksums/adult.txt.
    remotes=(
        Remote(
            "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/adult.data",
            "adult.data",
            "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            3974305,
        ),
        Remote(
            "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/adult.test",
            "adult.test",
            "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
            2003153,
        ),
    ),
)
DEAD_LEAVES: Final = Source(
    LEAVES,
    (10000, 2000),
    (28, 28, 1),
    10,
    "none needed: synthetic, drawn from a seed",
    make=leaves,
    home="drawn",
    by_hand="they are drawn from a seed, so there is nothing to fetch",
)
PREMIER_SYNTHETIC: Final = Source(
    PREMIER,
    (TRAIN, TEST),
    (FEATURES,),
    2,
    "none needed: synthetic, drawn from a seed",
    make=premier,
    home="drawn",
    by_hand="they are drawn from a seed, so there is nothing to fetch",
)

SOURCES: Final[Registry[Source]] = Registry(
    "data set",
    "sottovoce.data",
    {
        "digits": f"{__name__}:DIGITS",
        "mnist": f"{__name__}:MNIST",
        "fashion-mnist": f"{__name__}:FASHION_MNIST",
        "cifar10": f"{__name__}:CIFAR10",
        "imdb": f"{__name__}:IMDB",
        "lfw": f"{__name__}:LFW",
        "fairface": f"{__name__}:FAIRFACE",
        "diabetes130": f"{__name__}:DIABETES130",
        "adult": f"{__name__}:ADULT",
        LEAVES: f"{__name__}:DEAD_LEAVES",
        PREMIER: f"{__name__}:PREMIER_SYNTHETIC",
    },
    instance=Source,
    labels=("name",),
    key="[data] source",
)
