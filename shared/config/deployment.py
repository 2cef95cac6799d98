"""Several files that form one deployment: a pipeline each, and one broker, registry, control and applier for all.

Settings of the deployment may be in any of the files, and need to be in one only: in the end each ``Config`` has them,
so the configuration of one pipeline is complete.

Pipelines from REST are beside them as copies (``shared.config.pipeline_files``): a mistake in one of those affects that
pipeline only.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from shared.config.catalogs import ResolvedLake, located
from shared.config.config_errors import Mistakes, join, quoted
from shared.config.lake_policies import contradictions
from shared.config.lake_rules import ConfigContext
from shared.config.limits import limits_of, own_variables
from shared.config.loading import Loaded, load_file
from shared.config.model import Config, Section
from shared.config.path_overlap import ONE_TABLE_EACH, PathClaim, Paths, claim_of, table_names
from shared.config.pipeline_files import Fingerprint, PipelineFiles
from shared.config.rules import check_common
from shared.config.template_rules import filled
from shared.config.topic_limits import refusals
from shared.config.upkeep_rules import too_young
from shared.contracts.errors import ConfigError
from shared.contracts.messages import LakeRef

COMMON = ("server", "reader", "applier", "health", "metrics", "web", "instance", "kafka", "spark", "registry")
"""Sections of the deployment; ``state_dir`` is its too, and all else a pipeline's own."""

NOT_ITS_OWN = (*COMMON, "state_dir")
"""Keys that a pipeline which comes over REST can't have."""

OF_THE_DEPLOYMENT = "belongs to the deployment; leave it out, and write it in a file that the services are started with"

ENDINGS = (".yaml", ".yml")

ACCEPTED = "VIADUCK_ACCEPTED"
"""The environment variable in which a supervisor tells its processes what is in force: a ``Deployment.digest``."""

UNCHECKED = 0.0
"""Seconds below which upkeep takes nothing, for a file whose deadlines may be in another one: it is looked at later, or
the appliers keep what is too young."""

LOOK_AGAIN_S = 5.0
"""How often files that were left out are read again, to see whether they were corrected."""


@dataclass(frozen=True)
class Deployment:
    """The files of one command, in order. ``places``: what its ``-c`` named, files and folders."""

    places: tuple[Path, ...]
    configs: tuple[Config, ...]
    left_out: tuple[str, ...] = ()
    """The mistakes of files that are left out for now."""
    withheld: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The mistakes of pipelines that came over REST and can't be used by this process, by name."""
    copied: Fingerprint = ()
    """The copies, as they were when they were read."""

    @property
    def digest(self) -> str:
        """Equal where everything is that the pipelines have in common."""
        values = self.common.model_dump(mode="json", include=set(NOT_ITS_OWN))
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    @property
    def common(self) -> Config:
        """Whichever: for what all of them have in common."""
        return self.configs[0]

    @property
    def kafka(self) -> dict[str, Any]:
        """The part of the section that pipelines over REST are checked against."""
        return kafka_of(self.common)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(config.pipeline for config in self.configs)

    @property
    def may_grow(self) -> bool:
        """Whether its files could be several: one alone always stays alone, but for what comes over REST."""
        return len(self.places) > 1 or self.places[0].is_dir()

    @property
    def reads_alone(self) -> bool:
        """Whether its only reader runs in the process that was started for reading."""
        return not self.may_grow and len(self.configs) == 1

    @property
    def declared(self) -> tuple[Config, ...]:
        """The pipelines of files, without those from REST."""
        return tuple(config for config in self.configs if not config.over_rest)

    @property
    def copies(self) -> PipelineFiles:
        return PipelineFiles(self.common.state_dir)

    def find(self, pipeline: str) -> Config | None:
        return next((config for config in self.configs if config.pipeline == pipeline), None)

    def of(self, pipeline: str | None) -> Config:
        """The pipeline that is meant; None means the only one. Raises ``ConfigError``."""
        found = self.find(pipeline) if pipeline is not None else self.common
        if found is None and (wrong := self.withheld.get(pipeline or "", self.left_out)):
            raise ConfigError(wrong)
        if found is None or (pipeline is None and len(self.configs) > 1):
            raise ConfigError([f"--pipeline: choose one of {', '.join(self.names)}"])
        return found

    def each(self, change: Callable[[Config], Config]) -> Deployment:
        """With every file changed alike."""
        return replace(self, configs=tuple(map(change, self.configs)))

    def again(self) -> Deployment:
        """As the files are now. Raises ``ConfigError``; then nothing of them counts."""
        new = load_all(self.places)
        if not self.may_grow and new.common.pipeline != self.common.pipeline:
            was = self.common.pipeline
            raise ConfigError([f"pipeline: was {was}; stop all services and start them again for another"])
        return new

    def copies_changed(self) -> bool:
        """Whether pipelines came over REST, changed or went since the copies were read."""
        return self.copies.fingerprint() != self.copied

    def with_copies(self, environ: Mapping[str, str] = os.environ) -> Deployment:
        """The files as they were read, and the copies as they are now. A name that a file has is the file's."""
        copied = self.copies.fingerprint()  # before they are read: what changes meanwhile is seen the next time
        own = self._knowing_each_other()
        names = [name for name in self.copies.names() if name not in {config.pipeline for config in own}]
        configs, withheld = _copies(self.copies, names, own, environ) if names else ([], {})
        return replace(self, configs=(*own, *map(self.joined, configs)), withheld=withheld, copied=copied)

    def joined(self, config: Config) -> Config:
        """A pipeline with what this deployment's have in common."""
        common = {name: getattr(self.common, name) for name in NOT_ITS_OWN}
        return config.model_copy(update={**common, "reserved": self._reserved()})

    def _knowing_each_other(self) -> tuple[Config, ...]:
        """The files' pipelines; none of them lends its variables to what comes over REST for another."""
        reserved = self._reserved()
        return tuple(config.model_copy(update={"reserved": reserved}) for config in self.declared)

    def _reserved(self) -> frozenset[str]:
        return frozenset(name for config in self.declared for name in own_variables(config))


def kafka_of(config: Config) -> dict[str, Any]:
    """Where its broker is, and what its topics are called."""
    return config.kafka.model_dump(include={"bootstrap_servers", "topic_prefix"}, exclude_none=True)


def same_but_destinations(old: Config, new: Config) -> bool:
    """Whether a pipeline is what it was, as far as its processes read of the file."""
    return new.model_copy(update={"destinations": old.destinations}) == old


def load_all(
    places: Sequence[Path], environ: Mapping[str, str] = os.environ, accepted: str | None = None
) -> Deployment:
    """Read and check files, and all those of folders. Raises ``ConfigError`` with one line for each mistake.

    Where there are several files, each line begins with the file that it is about. ``accepted``: a process that starts
    again leaves out files that got mistakes meanwhile, if the others still say of the deployment what had this digest.
    """
    files = [file for place in places for file in _files(place)]
    several = len(files) > 1
    loaded: list[tuple[Path, Loaded]] = []
    mistakes: list[str] = []
    for file in files:
        try:
            loaded.append((file, load_file(file, environ, least_age_s=UNCHECKED if several else None)))
        except ConfigError as error:
            mistakes += [_of(file, line) if several else line for line in error.mistakes]
    if mistakes and not (loaded and accepted):
        raise ConfigError(mistakes)
    configs = _together(loaded, environ) if several else (loaded[0][1].config,)
    deployment = Deployment(tuple(places), configs, tuple(mistakes))
    if mistakes and deployment.digest != accepted:
        raise ConfigError(mistakes)
    grown = deployment.with_copies(environ)
    if refused := [line for config in grown.declared for line in _refused_template(config, several=several)]:
        raise ConfigError(refused)
    return grown


def _refused_template(config: Config, *, several: bool) -> Iterator[str]:
    """What a file's template may not name; said once the files are together, since the lists may be in any of them."""
    if config.template.is_given:
        section = config.template.model_dump(by_alias=True, exclude_none=True, mode="json")
        for path, said in limits_of(config, template=True).refusals(filled(section, "tenant")):
            line = f"{join('template', path)}: {said}"
            yield _of(config.path, line) if several else line


def _files(place: Path) -> list[Path]:
    """A folder's files by name. Hidden ones are an editor's, or the halves of a Kubernetes volume."""
    try:
        if not place.is_dir():
            return [place]
        found = (each for each in place.iterdir() if each.suffix in ENDINGS and not each.name.startswith("."))
        files = sorted(each for each in found if not each.is_dir())
    except OSError as error:
        why = error.strerror or "not a path"
        raise ConfigError([f"{place}: can't be read: {why}; correct the path or its permissions"]) from None
    if not files:
        raise ConfigError([f"{place}: has no file that ends in .yaml or .yml; write one, or name another folder"])
    return files


def _of(file: Path, line: str) -> str:
    return line if line.startswith(f"{file}: ") else f"{file}: {line}"


def _together(loaded: Sequence[tuple[Path, Loaded]], environ: Mapping[str, str]) -> tuple[Config, ...]:
    values, mistakes = _common_values(loaded)
    mistakes += [
        *_same_names(loaded),
        *_same_places(loaded, environ),
        *contradictions(((file, each.config) for file, each in loaded), environ),
    ]
    if not mistakes:
        said = Mistakes()
        check_common(values, ConfigContext(environ, loaded[0][1].config.path.parent), said)
        mistakes += [f"{_writers(loaded, path)}: {path}: {text}" for path, text in said.items()]
    if mistakes:
        raise ConfigError(mistakes)
    first = loaded[0][1].config
    common: dict[str, Any] = {
        name: type(getattr(first, name)).model_validate(values[name]) for name in COMMON if name in values
    }
    common["state_dir"] = values.get("state_dir", first.state_dir)
    configs = tuple(each.config.model_copy(update=common) for _, each in loaded)
    if young := [
        f"{file}: {path}: {said}"
        for (file, _), config in zip(loaded, configs, strict=True)
        for path, said in too_young(config)
    ]:
        raise ConfigError(young)
    return configs


def _common_values(loaded: Sequence[tuple[Path, Loaded]]) -> tuple[dict[str, Any], list[str]]:
    """What the files write of the deployment as one tree, and where two of them write different things."""
    tree: dict[str, Any] = {}
    mistakes: list[str] = []
    first: dict[tuple[str, ...], tuple[Path, Any]] = {}
    for file, each in loaded:
        for keys, value in _written(each):
            before, known = first.setdefault(keys, (file, value))
            if known != value:
                advice = f"is written otherwise in {before}; write it in one of them, or alike in both"
                mistakes.append(f"{file}: {_path(keys)}: {advice}")
            _put(tree, keys, known)
    return tree, mistakes


def _written(loaded: Loaded) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The keys of a file that belong to the deployment, and their values."""
    for name in COMMON:
        if name in loaded.sections:
            yield from _leaves(getattr(loaded.config, name), (name,))
    if "state_dir" in loaded.sections:
        yield ("state_dir",), loaded.config.state_dir


def _leaves(value: Any, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Section):
        for name in type(value).model_fields:
            if name in value.model_fields_set:
                yield from _leaves(getattr(value, name), (*keys, name))
    elif isinstance(value, dict):
        for name, each in value.items():
            yield (*keys, name), each
    else:
        yield keys, value


def _put(tree: dict[str, Any], keys: tuple[str, ...], value: Any) -> None:
    for key in keys[:-1]:
        tree = tree.setdefault(key, {})
    tree[keys[-1]] = value


def _path(keys: Sequence[str]) -> str:
    path = ""
    for key in keys:
        path = join(path, key)
    return path


def _writers(loaded: Sequence[tuple[Path, Loaded]], path: str) -> str:
    """The files that write the section of a path, by name."""
    section = path.partition(".")[0]
    return " and ".join(str(file) for file, each in loaded if section in each.sections)


def _same_names(loaded: Sequence[tuple[Path, Loaded]]) -> Iterator[str]:
    first: dict[str, Path] = {}
    for file, each in loaded:
        name = each.config.pipeline
        if name in first:
            yield f"{file}: pipeline: {quoted(name)} is that of {first[name]} too; write another name"
        first.setdefault(name, file)


def _same_places(loaded: Sequence[tuple[Path, Loaded]], environ: Mapping[str, str]) -> Iterator[str]:
    """Destinations of two files in one table, and their lakes' files in one place.

    Those of one file have been compared with each other.
    """
    taken = _Taken()
    for file, each in loaded:
        places = _places(each.config, environ)
        yield from (_of(file, line) for line in taken.clashes(places))
        taken.take(file, places)


@dataclass(frozen=True)
class _Place:
    """Where a destination stands in its file; its lake, schema and table, None for a source's; what its lake claims."""

    where: str
    table: tuple[str, str, str] | None
    claim: PathClaim | None


@dataclass
class _Taken:
    """What the destinations of files have taken."""

    tables: dict[tuple[str, str, str], tuple[Path, str]] = field(default_factory=dict)
    paths: Paths = field(default_factory=Paths)

    def take(self, file: Path, places: Sequence[_Place]) -> None:
        for each in places:
            if each.table is not None:
                self.tables.setdefault(each.table, (file, each.where))
            if each.claim is not None:
                self.paths.add(each.claim)

    def clashes(self, places: Sequence[_Place]) -> Iterator[str]:
        for each in places:
            if each.table in self.tables:
                before, there = self.tables[each.table]
                yield f"{each.where}.table: lake and table are those of {there} in {before} too; {ONE_TABLE_EACH}"
            if each.claim is not None and (said := self.paths.clash(each.claim)) is not None:
                yield f"{each.where}.data_path: {said}"


def _places(config: Config, environ: Mapping[str, str]) -> list[_Place]:
    found: list[_Place] = []
    if config.topic is None:
        source = located(config.source.lake, environ, config.path.parent)
        found.append(_Place("source", None, _claim(config, "source", source, config.source.lake)))
    for number, destination in enumerate(config.destinations):
        where, lake = join("destinations", number), located(destination.lake, environ, config.path.parent)
        table = lake.identity, *table_names(destination.schema_name, destination.table)
        claim = _claim(config, f"{where} ({destination.id})", lake, destination.lake)
        found.append(_Place(where, table, claim))
    return found


def _claim(config: Config, where: str, resolved: ResolvedLake, lake: LakeRef) -> PathClaim | None:
    known = lake.model_copy(update={"catalog": resolved.catalog})
    return claim_of(f"{where} in {config.path}", resolved.identity, known)


def _copies(
    copies: PipelineFiles, names: Sequence[str], own: Sequence[Config], environ: Mapping[str, str]
) -> tuple[list[Config], dict[str, tuple[str, ...]]]:
    """The copies of these names as pipelines, beside files' ``own``; and the mistakes of those that can't be."""
    taken = _Taken()
    for config in own:
        taken.take(config.path, _places(config, environ))
    found: list[Config] = []
    withheld: dict[str, tuple[str, ...]] = {}
    for name in names:
        try:
            config = _copy(copies.file(name), name, own[0], environ)
            places = _places(config, environ)
            if clashes := list(taken.clashes(places)):
                raise ConfigError(clashes)
        except ConfigError as error:
            withheld[name] = error.mistakes
        else:
            taken.take(config.path, places)
            found.append(config)
    return found, withheld


def _copy(file: Path, name: str, common: Config, environ: Mapping[str, str]) -> Config:
    """Raises ``ConfigError``. ``common``: any of the files' pipelines."""
    loaded = load_file(file, environ, kafka_of(common), UNCHECKED)
    mistakes = [f"{key}: {OF_THE_DEPLOYMENT}" for key in NOT_ITS_OWN if key in loaded.sections]
    if loaded.config.topic is not None:
        topic, limits = loaded.config.topic.model_dump(exclude_none=True), limits_of(common, over_rest=True)
        mistakes += [f"source.{path}: {said}" for path, said in refusals(topic, limits)]
    if loaded.config.pipeline != name:
        mistakes.append(f"pipeline: is {quoted(loaded.config.pipeline)}, and the file is called {file.name}")
    if mistakes:
        raise ConfigError(mistakes)
    return loaded.config
