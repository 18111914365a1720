"""Speed in virtual time: what distance, hardware, size and neighbours leave of it, against what the trace measured."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import World, a_job, racked, sockets, workers
from phalanx.cluster.cluster import NODE, Cluster, Link, Node, flat
from phalanx.cluster.device import Mode, Portion
from phalanx.cluster.topology import Topology
from phalanx.placement.placement import Placement, Slot
from phalanx.placement.ranks import with_mesh
from phalanx.simulate.world.locality import CURVES, Curve, Distance, Room, Spread, spread_of
from phalanx.simulate.world.speed import NEUTRAL, SpeedModel, asked_gpus, relative_speed
from phalanx.workload.family import OLD_PACES, Family, family_of
from phalanx.workload.gang import Gang, Role
from phalanx.workload.job import Job
from phalanx.workload.parallel import ParallelPlan, Traffic
from phalanx.workload.share import fraction_ask

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "virtual-time.md"
SWITCHED = (("socket", 2), ("switch", 4))
LINKS = {"node": Link(300.0, 2.0), "rack": Link(25.0, 5.0), "cluster": Link(12.5, 10.0)}


def at(*places: tuple[str, tuple[int, ...]]) -> Placement:
    """A placement with one task a pair of node and devices."""
    return Placement(tuple(Slot(rank, "worker", node, devices) for rank, (node, devices) in enumerate(places)))


def whole_nodes(*nodes: str, gpus: int = 8) -> Placement:
    return at(*((node, tuple(range(gpus))) for node in nodes))


def model_of(cluster: Cluster) -> SpeedModel:
    return SpeedModel(Topology(cluster))


def of_model(model: str, gpus: int = 1, count: int | tuple[int, int] = 1, **job: object) -> Job:
    return a_job("j", gpus, count, labels=(("model", model),), **job)


def rows_of_page(family: Family) -> list[tuple[float, ...]]:
    """The numbers of each row of a table of the page that begins with the family."""
    rows = []
    for line in PAGE.read_text().splitlines():
        first, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        if family.value in first.split(", "):
            rows.append(tuple(float(cell) for cell in cells if re.fullmatch(r"[0-9.]+", cell)))
    return rows


class TestFamilies:
    @pytest.mark.parametrize(
        ("model", "family"),
        [
            ("resnet50", Family.CONVOLUTION),
            ("ResNet-50 (batch size 64)", Family.CONVOLUTION),
            ("wide_resnet101_2", Family.CONVOLUTION),
            ("inception3", Family.CONVOLUTION),
            ("VGG16", Family.DENSE),
            ("alexnet", Family.DENSE),
            ("Transformer (batch size 16)", Family.TRANSFORMER),
            ("bert-large", Family.TRANSFORMER),
            ("meta-llama/Llama-3-70B", Family.TRANSFORMER),
            ("LM (batch size 5)", Family.RECURRENT),
            ("Recommendation (batch size 512)", Family.RECOMMENDATION),
            ("A3C", Family.REINFORCEMENT),
            ("mine", Family.OTHER),
            ("", Family.OTHER),
        ],
    )
    def test_a_model_belongs_to_a_family_by_its_name(self, model: str, family: Family) -> None:
        assert family_of(model) is family

    def test_every_family_has_a_curve(self) -> None:
        assert all(family in CURVES for family in Family)

    def test_communication_bound_models_suffer_up_to_five_times_and_compute_bound_ones_hardly(self) -> None:
        assert CURVES[Family.DENSE].at(Spread(Distance.FAR, 2)) == pytest.approx(1 / 5)
        assert 1 / CURVES[Family.DENSE].at(Spread(Distance.NODE, 1)) == pytest.approx(1.4, abs=0.01)
        assert CURVES[Family.CONVOLUTION].at(Spread(Distance.RACK, 2)) > 0.8
        order = [Family.CONVOLUTION, Family.TRANSFORMER, Family.OTHER, Family.RECURRENT, Family.DENSE]
        speeds = [CURVES[family].rack for family in order]
        assert speeds == sorted(speeds, reverse=True)

    @pytest.mark.parametrize("family", list(Family))
    def test_the_page_on_virtual_time_tells_the_numbers_of_every_family(self, family: Family) -> None:
        curve, paces = CURVES[family], OLD_PACES[family]
        distances = (1.0, curve.socket, curve.node, curve.rack, curve.far, curve.doubling)
        assert distances in rows_of_page(family)
        assert tuple(paces.values()) in rows_of_page(family)

    @pytest.mark.parametrize(
        "speeds", [(0.9, 0.95, 0.5, 0.4), (1.1, 0.9, 0.5, 0.4), (0.9, 0.8, 0.5, 0.0), (0.9, 0.8, float("nan"), 0.4)]
    )
    def test_a_curve_that_rises_with_distance_or_reaches_nothing_is_refused(self, speeds: tuple[float, ...]) -> None:
        with pytest.raises(ValueError, match="curve: speeds"):
            Curve(*speeds, doubling=0.9)

    @pytest.mark.parametrize("doubling", [0.0, 1.2, float("nan")])
    def test_a_curve_whose_doubling_is_no_part_is_refused(self, doubling: float) -> None:
        with pytest.raises(ValueError, match="curve: doubling"):
            Curve(0.9, 0.8, 0.7, 0.6, doubling)


class TestSpread:
    @pytest.mark.parametrize(
        ("devices", "distance"),
        [
            ((0, 1), Distance.SWITCH),
            ((0, 2), Distance.SOCKET),
            ((0, 1, 2, 3), Distance.SOCKET),
            ((3, 4), Distance.NODE),
            ((6, 7), Distance.SWITCH),
        ],
    )
    def test_inside_a_node_it_is_the_smallest_part_that_holds_all_devices(
        self, devices: tuple[int, ...], distance: Distance
    ) -> None:
        topology = Topology(sockets(1, split=SWITCHED))
        assert spread_of(topology, at(("n0", devices)).slots) == Spread(distance, 1)

    def test_a_node_that_is_not_split_is_one_switch(self) -> None:
        assert spread_of(Topology(flat(2, 8)), at(("n0", (0, 7))).slots) == Spread(Distance.SWITCH, 1)

    def test_tasks_on_one_node_count_together(self) -> None:
        topology = Topology(sockets(1, split=SWITCHED))
        assert spread_of(topology, at(("n0", (0, 1)), ("n0", (4, 5))).slots) == Spread(Distance.NODE, 1)

    def test_nodes_of_one_rack_are_near_and_others_far(self) -> None:
        topology = Topology(racked(2, 2))
        assert spread_of(topology, whole_nodes("n0", "n1").slots) == Spread(Distance.RACK, 2)
        assert spread_of(topology, whole_nodes("n1", "n2").slots) == Spread(Distance.FAR, 2)

    def test_a_cluster_without_racks_is_one_rack(self) -> None:
        assert spread_of(Topology(flat(2, 8)), whole_nodes("n0", "n1").slots) == Spread(Distance.RACK, 2)

    def test_tasks_without_gpus_do_not_count(self) -> None:
        topology = Topology(racked(2, 2))
        assert spread_of(topology, at(("n0", (0, 1)), ("n3", ())).slots) == Spread(Distance.SWITCH, 1)


class TestRoom:
    @pytest.mark.parametrize(
        ("tasks", "spreads"),
        [
            ((2,), (Spread(Distance.SWITCH, 1),)),
            ((1, 1, 1), (Spread(Distance.SOCKET, 1),)),
            ((4, 4), (Spread(Distance.NODE, 1),)),
            ((8, 8), (Spread(Distance.RACK, 2), Spread(Distance.FAR, 2))),
            ((5, 5, 3, 3), (Spread(Distance.RACK, 2), Spread(Distance.FAR, 2))),
            ((5, 5, 5), (Spread(Distance.FAR, 3),)),
            ((1,) * 24, (Spread(Distance.FAR, 3),)),
            ((8,) * 9, ()),
        ],
    )
    def test_it_knows_how_close_tasks_could_lie(self, tasks: tuple[int, ...], spreads: tuple[Spread, ...]) -> None:
        nodes = tuple(Node(f"n{i}", (f"r{i // 2}",), 8, split=SWITCHED) for i in range(4))
        room = Room(Topology(Cluster(nodes, ("rack", NODE, "socket", "switch"))), ())
        assert room.spreads(tasks) == spreads

    def test_only_nodes_of_the_types_that_the_job_may_use_count(self) -> None:
        nodes = (Node("big", (), 16, "A100"), Node("small0", (), 4, "T4"), Node("small1", (), 4, "T4"))
        topology = Topology(Cluster(nodes))
        assert Room(topology, ("T4",)).spreads((4, 4))[0] == Spread(Distance.RACK, 2)
        assert Room(topology, ()).spreads((4, 4))[0] == Spread(Distance.SWITCH, 1)


class TestLocality:
    @pytest.mark.parametrize("model", ["resnet50", "vgg16", "bert", "lstm", "dlrm", "a3c", "mine"])
    @pytest.mark.parametrize("node", ["n0", "n3"])
    def test_a_job_of_one_gpu_never_suffers(self, model: str, node: str) -> None:
        assert model_of(racked(2, 2)).alone(of_model(model), at((node, (5,)))) == 1.0

    def test_the_best_that_the_cluster_can_give_is_full_speed(self) -> None:
        model = model_of(racked(2, 4))
        job = of_model("vgg16", 8, 2)
        assert model.alone(job, whole_nodes("n0", "n1")) == 1.0
        assert model.alone(job, whole_nodes("n3", "n4")) == pytest.approx(0.20 / 0.25)

    def test_the_same_spread_costs_communication_bound_models_more(self) -> None:
        model = model_of(racked(2, 4))
        across = at(("n0", (0,)), ("n1", (0,)))
        speeds = {name: model.alone(of_model(name, 1, 2), across) for name in ("resnet50", "bert", "mine", "vgg16")}
        assert speeds == {"resnet50": 0.87, "bert": 0.65, "mine": 0.60, "vgg16": 0.25}

    def test_every_step_further_costs_more(self) -> None:
        nodes = tuple(Node(f"n{i}", (f"r{i // 2}",), 8, split=SWITCHED) for i in range(4))
        model = model_of(Cluster(nodes, ("rack", NODE, "socket", "switch")))
        job = of_model("vgg16", 1, 2)
        steps = [(("n0", 0), ("n0", 1)), (("n0", 0), ("n0", 2)), (("n0", 0), ("n0", 4)), (("n0", 0), ("n1", 0))]
        steps.append((("n0", 0), ("n2", 0)))
        speeds = [model.alone(job, at(*((node, (device,)) for node, device in step))) for step in steps]
        assert speeds[0] == 1.0
        assert speeds == sorted(speeds, reverse=True)
        assert len(dict.fromkeys(speeds)) == 5

    def test_sixteen_gpus_on_eight_nodes_keep_what_philly_saw(self) -> None:
        model = model_of(racked(1, 8))
        scattered = at(*((f"n{i}", (0, 1)) for i in range(8)))
        assert model.alone(of_model("mine", 2, 8), scattered) == pytest.approx(28.6 / 43.7, abs=0.01)

    def test_the_pool_of_a_cluster_taken_as_a_number_knows_no_distance(self) -> None:
        job = of_model("vgg16", 64)
        assert model_of(flat(1, 512)).alone(job, at(("n0", tuple(range(64))))) == 1.0

    @given(st.data())
    def test_no_placement_is_faster_than_measured_nor_stands_still(self, data: st.DataObject) -> None:
        nodes = tuple(
            Node(f"n{i}", (f"r{i // 3}",), data.draw(st.sampled_from([4, 8])), split=(("socket", 2),)) for i in range(6)
        )
        model = model_of(Cluster(nodes, ("rack", NODE, "socket")))
        chosen = data.draw(
            st.lists(st.tuples(st.integers(0, 5), st.integers(0, 7)), min_size=1, max_size=12, unique=True)
        )
        places = [(f"n{i}", (device,)) for i, device in chosen if device < nodes[i].gpus] or [("n0", (0,))]
        job = of_model(data.draw(st.sampled_from(["vgg", "bert", "resnet", "x"])), 1, len(places))
        assert 0 < model.alone(job, at(*places)) <= 1.0

    @pytest.mark.parametrize("gpus", [1, 2, 4, 8])
    @pytest.mark.parametrize("count", [1, 2, 3, 4])
    def test_what_the_scheduler_chooses_in_an_empty_cluster_is_full_speed(self, gpus: int, count: int) -> None:
        nodes = tuple(Node(f"n{i}", (f"r{i // 4}",), 8, split=(("socket", 2),)) for i in range(8))
        world = World(Cluster(nodes, ("rack", NODE, "socket")))
        job = replace(of_model("vgg16", gpus, count), gang=Gang((workers(count, gpus),)))
        world.run(job)
        attempt = world.job("j").attempt
        assert attempt is not None
        assert SpeedModel(world.state.topology).alone(job, attempt.placement) == 1.0


class TestHardware:
    def test_unknown_types_and_no_type_are_as_fast_as_any(self) -> None:
        assert relative_speed("H100", "") == 1.0
        assert relative_speed("", "H100") == 1.0
        assert relative_speed("H100", "our-own-chip") == 1.0

    def test_names_of_one_device_are_as_fast_as_each_other(self) -> None:
        assert relative_speed("NVIDIA A100-SXM4-80GB", "A100") == 1.0

    def test_newer_generations_are_faster(self) -> None:
        speeds = [relative_speed(name, "V100") for name in ("K80", "P100", "V100", "A100", "H100", "B200")]
        assert speeds == sorted(speeds)
        assert speeds[2] == 1.0

    def test_models_gain_unlike_from_the_same_hardware(self) -> None:
        gains = {model: relative_speed("V100", "K80", model) for model in ("resnet50", "transformer", "a3c", "dlrm")}
        assert gains["resnet50"] > gains["transformer"] > gains["a3c"] > gains["dlrm"] == 1.0

    @given(st.sampled_from(["K80", "P100", "V100", "T4", "A100", "H100", "TPU-v4"]), st.sampled_from(["H200", "L4"]))
    def test_there_and_back_is_where_it_was(self, one: str, other: str) -> None:
        assert relative_speed(one, other, "bert") * relative_speed(other, one, "bert") == pytest.approx(1.0)

    def test_a_job_was_measured_on_the_first_type_it_names(self) -> None:
        cluster = Cluster((Node("old", (), 8, "V100"), Node("new", (), 8, "A100")))
        job = a_job("j", 1, task={"gpu_types": ("V100", "A100")})
        model = model_of(cluster)
        assert model.alone(job, at(("old", (0,)))) == 1.0
        assert model.alone(job, at(("new", (0,)))) == pytest.approx(relative_speed("A100", "V100"))

    def test_mixed_types_go_at_the_slowest(self) -> None:
        cluster = Cluster((Node("old", (), 8, "V100"), Node("new", (), 8, "A100")))
        job = a_job("j", 8, 2, task={"gpu_types": ("A100", "V100")})
        speed = model_of(cluster).alone(job, whole_nodes("old", "new"))
        assert speed == pytest.approx(relative_speed("V100", "A100"))

    def test_a_job_that_names_no_type_runs_alike_unless_the_trace_was_measured_on_one(self) -> None:
        topology = Topology(flat(1, 8, "H100"))
        assert SpeedModel(topology).alone(a_job("j"), at(("n0", (0,)))) == 1.0
        measured = SpeedModel(topology, measured_on="A100")
        assert measured.alone(a_job("j"), at(("n0", (0,)))) == pytest.approx(relative_speed("H100", "A100"))


class TestElasticity:
    def test_fewer_gpus_are_slower_by_less_than_they_are_fewer(self) -> None:
        job = of_model("resnet50", 1, (1, 8))
        speed = model_of(flat(1, 8)).alone(job, at(*(("n0", (i,)) for i in range(4))))
        assert speed == pytest.approx(0.5**0.9)
        assert 0.5 < speed < 1

    def test_more_gpus_than_measured_with_are_faster_with_diminishing_return(self) -> None:
        job = a_job("j", 1, (1, 8), labels=(("gpus", "4"),))
        speed = model_of(flat(1, 8)).alone(job, at(*(("n0", (i,)) for i in range(8))))
        assert 1 < speed < 2

    @pytest.mark.parametrize("label", ["", "0", "many", "-4", "²"])
    def test_a_label_that_is_no_number_of_gpus_is_not_for_us(self, label: str) -> None:
        assert asked_gpus(a_job("j", 2, (1, 4), labels=(("gpus", label),))) == 8

    def test_gangs_inside_gangs_are_counted(self) -> None:
        inner = Role("worker", 2, 2, workers(gpus=4).task)
        job = Job("j", Gang((Role("replica", 1, 2, members=(inner,)),)))
        assert model_of(flat(2, 8)).alone(job, at(("n0", (0, 1, 2, 3)), ("n0", (4, 5, 6, 7)))) == pytest.approx(
            0.5**0.9
        )

    def test_a_job_without_gpus_has_full_speed(self) -> None:
        assert model_of(flat(1, 8)).alone(a_job("j", 0), at(("n0", ()))) == 1.0

    @pytest.mark.parametrize("alpha", [0.0, 1.5, float("nan")])
    def test_an_exponent_that_makes_no_sense_is_refused(self, alpha: float) -> None:
        with pytest.raises(ValueError, match="speed: alpha"):
            SpeedModel(Topology(flat(1, 8)), alpha=alpha)

    @given(st.integers(1, 64), st.integers(1, 64))
    def test_more_gpus_never_make_a_job_slower(self, few: int, more: int) -> None:
        model = model_of(flat(1, 128))
        job = a_job("j", 1, (1, 128))
        speeds = [model.alone(job, at(*(("n0", (i,)) for i in range(count)))) for count in sorted((few, few + more))]
        assert speeds[0] < speeds[1] <= 1.0


class TestMesh:
    PLAN = ParallelPlan(tp=4, pp=2, dp=2)

    def meshed(self, cluster: Cluster, job: Job, placement: Placement) -> float:
        topology = Topology(cluster)
        return SpeedModel(topology).alone(job, with_mesh(topology, job, placement))

    def linked(self, racks: int = 2, nodes: int = 4) -> Cluster:
        return replace(racked(racks, nodes, gpu_type="A100"), links=LINKS)

    def test_a_compact_placement_is_full_speed(self) -> None:
        job = a_job("j", 8, 2, parallel=self.PLAN)
        assert self.meshed(self.linked(), job, whole_nodes("n0", "n1")) == 1.0

    def test_another_rack_costs_what_the_cost_model_says(self) -> None:
        job = a_job("j", 8, 2, parallel=self.PLAN)
        assert 0.5 < self.meshed(self.linked(), job, whole_nodes("n0", "n7")) < 1

    def test_the_more_a_job_sends_the_more_distance_costs_it(self) -> None:
        speeds = []
        for micro_batches in (1, 8, 64):
            traffic = Traffic(layers=80, micro_batches=micro_batches)
            job = a_job("j", 8, 2, parallel=ParallelPlan(tp=8, pp=1, dp=2), traffic=traffic)
            speeds.append(self.meshed(self.linked(), job, whole_nodes("n0", "n7")))
        assert speeds == sorted(speeds)
        assert speeds[0] < speeds[-1]

    def test_fewer_replicas_do_fewer_samples(self) -> None:
        job = a_job("j", 8, (1, 4), parallel=ParallelPlan(tp=4, pp=2, dp=4))
        half = self.meshed(self.linked(), job, whole_nodes("n0", "n1"))
        all_of_it = self.meshed(self.linked(), job, whole_nodes("n0", "n1", "n2", "n3"))
        assert all_of_it == 1.0
        assert 0.5 <= half < 1

    def test_faster_hardware_speeds_up_computing_and_not_sending(self) -> None:
        cluster = replace(racked(1, 4, gpu_type="H100"), links=LINKS)
        job = a_job("j", 8, 2, parallel=self.PLAN, task={"gpu_types": ("A100", "H100")})
        assert 1 < self.meshed(cluster, job, whole_nodes("n0", "n1")) < relative_speed("H100", "A100")

    def test_a_cluster_that_gives_no_bandwidth_goes_by_the_curve(self) -> None:
        job = a_job("j", 8, 2, parallel=self.PLAN, labels=(("model", "llama"),))
        speed = self.meshed(racked(2, 4), job, whole_nodes("n0", "n7"))
        assert speed == pytest.approx(CURVES[Family.TRANSFORMER].far / CURVES[Family.TRANSFORMER].rack)

    def test_a_size_that_no_plan_fits_goes_by_the_curve(self) -> None:
        job = a_job("j", 8, 2, parallel=ParallelPlan(tp=3, pp=1, dp=1))
        mesh = tuple((node, device) for node in ("n0", "n7") for device in range(8))
        placement = replace(whole_nodes("n0", "n7"), mesh=mesh)
        speed = SpeedModel(Topology(self.linked())).alone(job, placement)
        assert speed == pytest.approx(CURVES[Family.OTHER].far / CURVES[Family.OTHER].rack)

    def test_a_model_without_weights_that_sends_nothing_has_full_speed(self) -> None:
        traffic = Traffic(num_params_billions=0.0)
        job = a_job("j", 1, parallel=ParallelPlan(), traffic=traffic)
        assert self.meshed(self.linked(), job, at(("n0", (0,)))) == 1.0

    def test_asking_again_gives_the_same_answer(self) -> None:
        topology = Topology(self.linked())
        model = SpeedModel(topology)
        job = a_job("j", 8, 2, parallel=self.PLAN)
        placement = with_mesh(topology, job, whole_nodes("n0", "n7"))
        assert model.alone(job, placement) == model.alone(job, placement) == SpeedModel(topology).alone(job, placement)

    @given(st.permutations([f"n{i}" for i in range(8)]), st.sampled_from([1, 2, 4]))
    def test_no_layout_is_faster_than_measured(self, nodes: list[str], count: int) -> None:
        job = a_job("j", 8, count, parallel=ParallelPlan(tp=4, pp=2, dp=count))
        assert 0 < self.meshed(self.linked(), job, whole_nodes(*nodes[:count])) <= 1.0


QUARTER = {"share": fraction_ask(250)}


class TestSharing:
    MODEL = SpeedModel(Topology(flat(1, 8)))

    def part(self, mode: Mode, permille: int, revocable: bool = False) -> Portion:
        turns = 1000 // permille if mode is Mode.TURNS else None
        profile = "1g.10gb" if mode is Mode.MIG else None
        return Portion(mode, permille, 0, turns=turns, mig_profile=profile, revocable=revocable)

    @pytest.mark.parametrize("mode", [Mode.FRACTION, Mode.MPS, Mode.TURNS, Mode.MIG])
    def test_without_neighbours_a_job_has_the_speed_of_what_it_asked_for(self, mode: Mode) -> None:
        assert self.MODEL.shared(a_job("j"), self.part(mode, 250), ()) == 1.0

    @pytest.mark.parametrize(
        ("mode", "speed"),
        [(Mode.FRACTION, 0.925), (Mode.TURNS, 0.925 / 4), (Mode.MPS, 0.98**3), (Mode.MIG, 1.0)],
    )
    def test_three_neighbours_cost_what_was_measured(self, mode: Mode, speed: float) -> None:
        portion = self.part(mode, 250)
        assert self.MODEL.shared(a_job("j", task=QUARTER), portion, [portion] * 3) == pytest.approx(speed)

    def test_revocable_portions_get_what_guaranteed_ones_leave(self) -> None:
        guaranteed, revocable = self.part(Mode.MPS, 900), self.part(Mode.MPS, 500, revocable=True)
        assert self.MODEL.shared(a_job("j"), revocable, [guaranteed]) == pytest.approx(0.98 * 100 / 500)
        assert self.MODEL.shared(a_job("j"), guaranteed, [revocable]) == pytest.approx(0.98)

    def test_jobs_that_live_in_memory_lose_more_by_switching(self) -> None:
        half = self.part(Mode.FRACTION, 500)
        assert self.MODEL.shared(of_model("dlrm", task=QUARTER), half, [half]) == pytest.approx(0.90)
        assert self.MODEL.shared(of_model("bert", task=QUARTER), half, [half]) == pytest.approx(0.925)

    def test_a_job_that_asked_for_the_whole_and_got_half_is_as_fast_as_pairs_were_measured(self) -> None:
        half = self.part(Mode.FRACTION, 500)
        model = SpeedModel(Topology(flat(1, 8)), measured_on="K80")
        assert model.shared(a_job("j"), half, [half]) == pytest.approx(1.07 / 2)
        assert model.shared(a_job("j"), half, ()) == 1.0


def test_in_a_world_without_costs_everything_has_full_speed() -> None:
    half = Portion(Mode.FRACTION, 500, 0)
    assert NEUTRAL.alone(of_model("vgg16", 1, (1, 8)), at(("here", (0,)), ("there", (0,)))) == 1.0
    assert NEUTRAL.shared(a_job("j"), half, [half]) == 1.0
