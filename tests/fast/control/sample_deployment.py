"""A rig in the middle of a working day: sixty tenants, a few of them in trouble, and an hour behind it."""

from __future__ import annotations

import json
import math
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from services.control.operations.work_items import Work
from services.control.store.audit_log import AuditLog
from services.control.view.status_store import StatusStore
from shared.config.catalogs import ResolvedLake
from shared.contracts.messages import ItemKind, Outcome, Problem, Progress
from shared.contracts.reports import Frontier, Lagging
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect
from tests.fast.control.examples import PIPELINE, frontier
from tests.fast.control.operations.test_work_items import TOPICS, FakeBroker, item, letter
from tests.fast.control.rig import ControlRig, D, entry

TENANTS = dict(
    line.split(" ", 1)
    for line in """\
aal-und-anker Aal & Anker Räucherei GmbH
adebar Adebar Hebammen eG
alpenglueck Alpenglück Käserei KG
auster Auster & Söhne
bachstelze Bachstelze Mühlenwerke
baerenmoor Bärenmoor Torf und Gärten
blesshuhn Bleßhuhn Verlag
brachvogel Brachvogel Küstenschutz
chidori 千鳥運輸株式会社
dohle Dohle Türme & Glocken
drossel Drossel Ventile GmbH
eider Eider Daunen
eisvogel Eisvogel Kältetechnik
elster Elster Schmuckhandel
entenhausen Entenhausener Werke AG
fasan Fasan Jagdausstatter
fischadler Fischadler Netze
fuji-sekkei 富士設計事務所
gaensemarkt Gänsemarkt Apotheken
gimpel Gimpel Chöre e.V.
habicht Habicht Sicherheit
hakuchou 白鳥製菓
haubentaucher Haubentaucher Schwimmschulen
hibari ひばり保育園
ibis Ibis Hotelwäsche
kamome かもめ食堂
karasu カラス清掃サービス
kiebitz Kiebitz Feldfrüchte
kingfisher Kingfisher Optics
kleiber Kleiber Fassaden
kolkrabe Kolkrabe Bestattungen
kormoran Kormoran Fähren
kranich Kranich Stahlbau SE
lapwing Lapwing & Partners
lerche Lerche Wecker
mallardine Mallardine
mauersegler Mauersegler Luftpost
meise Meise Futterhäuser
milan Milan Möbel
moewe Möwe Strandkörbe
nachtigall Nachtigall Opernbühnen
nuthatch Nuthatch Woodworks
pelican-freight Pelican Freight Inc.
pirol Pirol Obsthöfe
puffin Puffin Ísland ehf.
quacksworth Quacksworth
rohrdommel Rohrdommel Blechbläser
rotkehlchen Rotkehlchen Weihnachtsmärkte
sandpiper Sandpiper Analytics
schnepfe Schnepfe Moorbäder
schwan Schwan Tretboote
seeadler Seeadler Reederei
shirasagi 白鷺城観光
specht Specht Tischlerei
star Star Obstpressen
tancho 丹頂鶴保護協会
teal Teal Street Bakery
uguisu うぐいす茶園
wiedehopf Wiedehopf Kammfabrik
zaunkoenig Zaunkönig Mikroelektronik""".splitlines()
)

SHOWN = "entenhausen"
"""Whose lake is really there, with commits in it."""

HEAD = 48_211
HOUR = timedelta(hours=1)
BEATS = 720
COMMITS, UNHEARD = 40, 5
"""In the lake of ``SHOWN``; of the first ones control has not heard how long they took."""

PARKED, FAILING, SEEDING, PAUSED = "gaensemarkt", "seeadler", "zaunkoenig", "lapwing"
LAGGING = {FAILING: 214.0, PARKED: 97.4, "kranich": 38.4, "fuji-sekkei": 12.6, "eisvogel": 4.1, "ibis": 1.3}

WORKING = [name for name in TENANTS if name not in (PARKED, FAILING, SEEDING)]

REFUSED = Problem(
    type="access_denied",
    message="the catalog of gaensemarkt refuses the role viaduck: permission denied for schema public",
    hint="grant it USAGE and CREATE on the schema, then resume the destination",
    retryable=False,
)
UNREACHABLE = Problem(
    type="destination_unreachable",
    message="the catalog of seeadler does not answer: connection timed out after 10 s",
    hint="check its host and port, and that its database runs; it is tried again automatically",
    retryable=True,
)


def busy_rig(folder: Path) -> ControlRig:
    """Every time in it is relative to now."""
    now = datetime.now(UTC)
    moment = [now.timestamp()]
    broker = FakeBroker()
    broker.put(item("one", id=PARKED, published_at=now))
    broker.put(letter())

    def work(status_store: StatusStore, trail: AuditLog) -> Work:
        return Work(PIPELINE, TOPICS, broker, broker, status_store.view, trail)

    rig = ControlRig(folder, now=now - 3 * HOUR, clock=lambda: moment[0], work=work)
    _register(rig, folder)
    for name in TENANTS.keys() - {SEEDING}:
        _apply(rig, name, 40 * len(TENANTS[name]) ** 2, 0, now - HOUR)
    for beat in range(BEATS - 1):
        moment[0] = (now - HOUR).timestamp() + 5.0 * (beat + 1)
        _live(rig, beat, datetime.fromtimestamp(moment[0], UTC))
        if beat == BEATS - 40:
            _complain(rig, now)
        rig.history.feel()
    rig.now = now - timedelta(minutes=4)
    assert rig.http.post(f"{D}/{PAUSED}/pause").is_success
    moment[0] += 5.0
    _apply(rig, SHOWN, 3_120, BEATS, now)
    _look(rig, LAGGING, now)
    rig.history.feel()
    return rig


def _register(rig: ControlRig, folder: Path) -> None:
    lines = [json.dumps(entry(name, id=name, routing_value=value)) for name, value in TENANTS.items()]
    body = "\n".join(lines).encode()
    answer = rig.http.request("POST", f"{D}:import", content=body, headers={"Content-Type": "application/x-ndjson"})
    assert answer.is_success, answer.text
    commit_an_hour(folder / "lakes" / f"{SHOWN}.sqlite")
    for number in range(UNHEARD, COMMITS):
        _took(rig, number)


def _live(rig: ControlRig, beat: int, at: datetime) -> None:
    """Five seconds of work: three tenants get rows. One trouble comes and goes, another began a while ago."""
    rate = 900 + 380 * math.sin(beat / 70) + 130 * math.sin(beat / 5.3) + 90 * math.sin(beat * 1.9)
    for number in range(3):
        _apply(rig, WORKING[(3 * beat + number) % len(WORKING)], int(5 * rate / 3), beat, at)
    trouble = 46.0 * math.exp(-(((beat - 300) / 28) ** 2))
    lagging = {"kranich": 2.4 + math.sin(beat / 9) + 0.6 * math.sin(beat * 2.3) + trouble}
    since = {name: LAGGING[name] - 5.0 * (BEATS - beat) for name in (PARKED, FAILING)}
    _look(rig, lagging | {name: lag for name, lag in since.items() if lag > 0}, at, HEAD - (BEATS - beat))


def _apply(rig: ControlRig, name: str, rows: int, beat: int, at: datetime, **word: Any) -> None:
    seen = rig.status_store.view().seen.get(name)
    before = 0 if seen is None or seen.rows_applied is None else seen.rows_applied
    through = HEAD - (BEATS - beat)
    told: dict[str, Any] = {"outcome": Outcome.APPLIED, "position": through - 3, "through": through, **word}
    rig.status_store.note(
        Progress(pipeline=PIPELINE, destination=name, item=f"{name}-{beat}", kind=ItemKind.CHANGES, generation=1,
                 rows_applied=before + rows, at=at, **told)
    )  # fmt: skip


def _complain(rig: ControlRig, now: datetime) -> None:
    for name, outcome, error in ((PARKED, Outcome.PARKED, REFUSED), (FAILING, Outcome.FAILED, UNREACHABLE)):
        _apply(rig, name, 0, BEATS - 40, now - timedelta(minutes=3), outcome=outcome, error=error)


def _look(rig: ControlRig, lagging: dict[str, float], at: datetime, head: int = HEAD) -> None:
    held = rig.registry.destinations().values()
    behind = {
        name: Lagging(known_through=head - 2 - int(lag), lag_seconds=lag, in_flight=name not in (PARKED, FAILING))
        for name, lag in lagging.items()
    }
    behind[SEEDING] = Lagging(known_through=-1, lag_seconds=0.0, in_flight=True)
    word: Frontier = frontier(held, head=head, at=at)
    rig.status_store.note(word.model_copy(update={"lagging": behind}))


def _took(rig: ControlRig, number: int) -> None:
    """An applier says how long a commit took it."""
    phases = {"feed": 0.06 + 0.02 * math.sin(number / 3), "apply": 0.09 + 0.04 * math.sin(number * 1.7)}
    through = through_of(number)
    rig.status_store.note(
        Progress(pipeline=PIPELINE, destination=SHOWN, item=f"i{number}", kind=ItemKind.CHANGES, generation=1,
                 outcome=Outcome.APPLIED, position=through, through=through, seconds=phases, at=rig.now)
    )  # fmt: skip


PATHS = (None, "extension", "direct")
"""What the stamps of ``commit_an_hour`` say of who committed, in turn: those of an old Viaduck say nothing."""


def through_of(number: int) -> int:
    """The snapshot that a commit of ``commit_an_hour`` reaches."""
    return HEAD - 12 * (COMMITS - 1 - number) - 4


def commit_an_hour(file: Path) -> None:
    """A lake with an hour of stamped commits; only its catalog's clock is turned back."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rng = Random(6)
    lake = ResolvedLake(f"sqlite:{file}", data_path=f"{file.parent}/data/")
    with closing(connect()) as con:
        attach(con, "lake", lake, read_only=False, create=True)
        for number in range(COMMITS):
            through = through_of(number)
            seeded = number == 0
            inserted = 18_342 if seeded else rng.randint(40, 900)
            by = PATHS[number % len(PATHS)]
            stamp = {
                "viaduck": 1, "pipeline": PIPELINE, "destination": SHOWN, "kind": "seed" if seeded else "changes",
                "generation": 1, "after": -1 if seeded else through - 12, "through": through, "item": f"i{number}",
                "token": f"t{number}", "deleted": 0 if seeded else rng.randint(0, inserted), "inserted": inserted,
                **({} if by is None else {"commit": by}),
            }  # fmt: skip
            con.execute("BEGIN")
            con.execute(f"CREATE TABLE lake.t{number} (n INTEGER)")
            con.execute(
                "CALL lake.set_commit_message('viaduck', ?, extra_info => ?)", [f"{SHOWN} {through}", json.dumps(stamp)]
            )
            con.execute("COMMIT")
    began = datetime.now(UTC) - HOUR
    with closing(sqlite3.connect(file)) as catalog, catalog:
        for number in range(COMMITS + 1):
            at = began + number * HOUR / (COMMITS + 1)
            catalog.execute(
                "UPDATE ducklake_snapshot SET snapshot_time = ? WHERE snapshot_id = ?",
                [at.strftime("%Y-%m-%d %H:%M:%S.%f+00"), number],
            )
