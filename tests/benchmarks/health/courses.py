"""More than sixty sequences of facts and the course that each brings, reckoned from the policy by hand.

A fact is `TIME [GPU] WHAT [VALUE]`, facts are separated by `;`; a course is `TIME STATE` after `TIME STATE`, by GPU.
Sources of the incidents: NVIDIA's XID catalogue; arXiv 2503.11901 (Delta), 2410.21680 (RSC), 2509.16293 (ByteRobust);
NVIDIA/open-gpu-kernel-modules issues 1150 and 1355; NVSentinel issue 1748.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    """What is told, and what has to follow; GPUs that are not named stay healthy."""

    name: str
    told: str
    course: dict[str, str]


H, Q, P, S, F = "healthy", "quarantined", "probation", "suspect", "failed"


def _course(*steps: float | str) -> str:
    return " ".join(map(str, steps))


CASES = [
    # One application's fault, and notices.
    Case("one program reads where it must not", "0 a xid 31", {}),
    Case("one program in a loop is one program", "0 a xid 13; 60 a xid 13; 200 a xid 13; 380 a xid 13", {}),
    Case("two programs within a day point to the GPU", "0 a xid 31; 7200 a xid 13", {"a": _course(7200, S, 86400, H)}),
    Case("two programs a day apart do not", "0 a xid 31; 86401 a xid 31", {}),
    Case(
        "three programs: suspect until only one is left of the day",
        "0 a xid 31; 1000 a xid 31; 50000 a xid 31",
        {"a": _course(1000, S, 87400, H)},
    ),
    Case("a contained memory error ends one program", "0 a xid 94", {}),
    Case("clean-up after a program", "0 a xid 43; 1 a xid 45; 500 a xid 45", {}),
    Case("a row will be remapped at the next reset", "0 a xid 63", {}),
    Case("many corrected errors are a notice", "0 a xid 92; 100 a xid 92; 4000 a xid 92", {}),
    Case("the recovery action changed is told by the action itself", "0 a xid 154", {}),
    Case("a peer's illegal access", "0 a xid 137", {}),
    Case("power smoothing", "0 a xid 162; 9 a xid 163; 10 a xid 165", {}),
    # What only a reset cures.
    Case(
        "off the bus, until the machine is started anew",
        "0 a xid 79; 4000 boot",
        {"a": _course(0, Q, 4000, P, 7600, H)},
    ),
    Case("off the bus, and nobody comes", "0 a xid 79; 900000 b xid 31", {"a": _course(0, Q)}),
    Case(
        "uncontained memory error, driver loaded anew after the hold",
        "0 a xid 95; 400 driver_reload true",
        {"a": _course(0, Q, 400, P, 4000, H)},
    ),
    Case(
        "... loaded anew at once: the hold is served all the same",
        "0 a xid 95; 100 driver_reload true",
        {"a": _course(0, Q, 300, P, 3900, H)},
    ),
    Case(
        "firmware does not answer; the driver's own word shows the reset",
        "0 a xid 119; 1 a recovery_action 1; 600 a recovery_action 0",
        {"a": _course(0, Q, 600, P, 4200, H)},
    ),
    Case(
        "firmware does not answer; no action asked for is no reset",
        "0 a recovery_action 0; 5 a xid 119; 600 a recovery_action 0",
        {"a": _course(5, Q)},
    ),
    Case(
        "an agent's restart is no reset",
        "0 a xid 120; 50 agent_restart true; 4000 agent_restart true",
        {"a": _course(0, Q)},
    ),
    Case("a boot within the hold ends it", "0 a xid 143; 120 boot true", {"a": _course(0, Q, 120, P, 3720, H)}),
    # What the driver decides.
    Case("double-bit error, contained", "0 a recovery_action 0; 5 a xid 48", {"a": _course(5, Q, 305, P, 3905, H)}),
    Case(
        "double-bit error on a driver that never says",
        "0 a xid 48; 90000 boot true",
        {"a": _course(0, Q, 90000, P, 93600, H)},
    ),
    Case(
        "double-bit error with its row noted",
        "0 a recovery_action 0; 5 a xid 48; 5 a xid 63; 9 a recovery_action 1; 4000 a recovery_action 0",
        {"a": _course(5, Q, 4000, P, 7600, H)},
    ),
    Case(
        "the driver learns to say during the hold",
        "0 a xid 62; 100 a recovery_action 0",
        {"a": _course(0, Q, 300, P, 3900, H)},
    ),
    Case("the driver says so late", "0 a xid 62; 1000 a recovery_action 0", {"a": _course(0, Q, 1000, P, 4600, H)}),
    Case(
        "a reset is asked for without any error",
        "0 a recovery_action 1; 1000 a recovery_action 0",
        {"a": _course(0, Q, 1000, P, 4600, H)},
    ),
    Case("drain and reset", "0 a recovery_action 4; 100 a recovery_action 0", {"a": _course(0, Q, 300, P, 3900, H)}),
    Case("bus reset", "0 a recovery_action 6", {"a": _course(0, Q)}),
    Case(
        "peer traffic to be drained: alone it works",
        "0 a recovery_action 3; 100 a recovery_action 0",
        {"a": _course(0, S, 100, H)},
    ),
    Case(
        "reboot asked for by the whole driver; one is sick",
        "0 a xid 79; 5 recovery_action 2; 9 b xid 31; 4000 boot true",
        {"a": _course(0, Q, 4000, P, 7600, H), "b": _course(5, S, 4000, H)},
    ),
    Case(
        "reboot asked for, and nobody is sick",
        "0 a recovery_action 2; 0 b recovery_action 2; 500 boot true",
        {"a": _course(0, S, 500, H), "b": _course(0, S, 500, H)},
    ),
    # Errors that nobody knows, and holds.
    Case("an unknown error counts for a while", "0 a xid 12345", {"a": _course(0, Q, 300, P, 3900, H)}),
    Case(
        "PCIe went to a narrower width: a while, or a reset",
        "0 a xid 168; 5000 driver_reload true",
        {"a": _course(0, Q, 5000, P, 8600, H)},
    ),
    Case("mechanical", "0 a xid 142; 100 driver_reload true; 5000 boot true", {"a": _course(0, F, 5000, P, 8600, H)}),
    Case(
        "a burst is one incident, held from its last error",
        "0 a xid 78; 100 a xid 78; 250 a xid 78",
        {"a": _course(0, Q, 550, P, 4150, H)},
    ),
    Case(
        "the second incident of a day is held twice as long",
        "0 a xid 78; 5000 a xid 78",
        {"a": _course(0, Q, 300, P, 3900, H, 5000, Q, 5600, P, 9200, H)},
    ),
    Case(
        "an incident on probation", "0 a xid 78; 1000 a xid 78", {"a": _course(0, Q, 300, P, 1000, Q, 1600, P, 5200, H)}
    ),
    Case(
        "a graver error of the same burst stays",
        "0 a xid 78; 10 a xid 79; 9000 boot true",
        {"a": _course(0, Q, 9000, P, 12600, H)},
    ),
    # Too often.
    Case(
        "three incidents in a day",
        "0 a xid 78; 1000 a xid 78; 5000 a xid 78",
        {"a": _course(0, Q, 300, P, 1000, Q, 1600, P, 5000, F)},
    ),
    Case(
        "three incidents in a day, repaired by a reboot",
        "0 a xid 78; 1000 a xid 78; 5000 a xid 78; 9000 boot true",
        {"a": _course(0, Q, 300, P, 1000, Q, 1600, P, 5000, F, 9000, P, 12600, H)},
    ),
    Case(
        "... and again on the same day",
        "0 a xid 78; 1000 a xid 78; 5000 a xid 78; 9000 boot true; 20000 a xid 78",
        {"a": _course(0, Q, 300, P, 1000, Q, 1600, P, 5000, F, 9000, P, 12600, H, 20000, F)},
    ),
    Case(
        "five in a week, never three in a day",
        "0 a xid 78; 100000 a xid 78; 200000 a xid 78; 300000 a xid 78; 400000 a xid 78",
        {
            "a": _course(
                0,
                Q,
                300,
                P,
                3900,
                H,
                100000,
                Q,
                100300,
                P,
                103900,
                H,
                200000,
                Q,
                200300,
                P,
                203900,
                H,
                300000,
                Q,
                300300,
                P,
                303900,
                H,
                400000,
                F,
            )
        },
    ),
    Case(
        "two in a day is not too often",
        "0 a xid 78; 43200 a xid 78; 129601 a xid 78",
        {"a": _course(0, Q, 300, P, 3900, H, 43200, Q, 43800, P, 47400, H, 129601, Q, 129901, P, 133501, H)},
    ),
    # Lost and back.
    Case("lost for a moment", "0 a lost true; 10 a back true", {"a": _course(0, Q, 300, P, 3900, H)}),
    Case("lost for an hour", "0 a lost true; 3600 a back true", {"a": _course(0, Q, 3600, P, 7200, H)}),
    Case(
        "lost, and there again after a reboot",
        "0 a lost true; 500 boot true; 560 a back true",
        {"a": _course(0, Q, 560, P, 4160, H)},
    ),
    Case(
        "lost, and still lost after a reboot",
        "0 a lost true; 500 boot true; 560 a lost true",
        {"a": _course(0, Q, 560, F)},
    ),
    Case(
        "... until it is put in again",
        "0 a lost true; 500 boot true; 560 a lost true; 9000 boot true; 9060 a back true",
        {"a": _course(0, Q, 560, F, 9060, P, 12660, H)},
    ),
    Case(
        "it comes and goes",
        "0 a lost true; 10 a back true; 1000 a lost true; 1010 a back true; 5000 a lost true; 5010 a back true",
        {"a": _course(0, Q, 300, P, 1000, Q, 1600, P, 5000, F)},
    ),
    # Memory.
    Case("no spare row left", "0 a remap_failure true; 5000 boot true", {"a": _course(0, F)}),
    Case(
        "no spare row left, and a person takes the blame",
        "0 a remap_failure true; 5000 a override healthy",
        {"a": _course(0, F, 5000, H)},
    ),
    Case("uncorrected errors without a word of the driver", "0 a ecc_uncorrected 2", {"a": _course(0, S, 86400, H)}),
    Case(
        "uncorrected errors that an XID has told",
        "0 a recovery_action 0; 5 a xid 48; 6 a ecc_uncorrected 1",
        {"a": _course(5, Q, 305, P, 3905, H)},
    ),
    # Heat.
    Case("heat for five minutes", "0 a throttled true; 300 a throttled false", {}),
    Case("heat for eight of ten minutes", "0 a throttled true; 480 a throttled false", {"a": _course(360, S, 720, H)}),
    # Errors that come too fast, and conditions that stand.
    Case("some corrected errors are what the correction is for", "0 a ecc_corrected_per_second 1000", {}),
    Case(
        "a storm of corrected errors, and ten minutes more",
        "0 a ecc_corrected_per_second 5000; 300 a ecc_corrected_per_second 2",
        {"a": _course(0, S, 900, H)},
    ),
    Case(
        "a storm that comes back within ten minutes is one",
        "0 a ecc_corrected_per_second 17600; 60 a ecc_corrected_per_second 0; 600 a ecc_corrected_per_second 4600; "
        "900 a ecc_corrected_per_second 0",
        {"a": _course(0, S, 1500, H)},
    ),
    Case(
        "that it is over is told at each look, and counts from the first",
        "0 a ecc_corrected_per_second 5000; 300 a ecc_corrected_per_second 0; 600 a ecc_corrected_per_second 0; "
        "870 a ecc_corrected_per_second 0",
        {"a": _course(0, S, 900, H)},
    ),
    Case(
        "two concerns at once, each over by itself",
        "0 a temperature_margin 0; 10 a nvlink_errors_per_second 500; 20 a temperature_margin 0; 30 a temperature_margin 5; "
        "1000 a nvlink_errors_per_second 500; 1100 a nvlink_errors_per_second 0; 1130 a temperature_margin 5",
        {"a": _course(0, S, 1700, H)},
    ),
    Case(
        "one concern comes back while another stands",
        "0 a temperature_margin 0; 30 a temperature_margin 9; 60 a nvlink_errors_per_second 500; 90 a temperature_margin 0; "
        "120 a temperature_margin 9; 1000 a nvlink_errors_per_second 0",
        {"a": _course(0, S, 1600, H)},
    ),
    Case(
        "one concern after the other",
        "0 a temperature_margin 0; 30 a temperature_margin 9; 500 a nvlink_errors_per_second 500; "
        "530 a nvlink_errors_per_second 0; 560 a temperature_margin 9; 600 a temperature_margin 0; 640 a temperature_margin 9",
        {"a": _course(0, S, 1240, H)},
    ),
    Case("no spare row in a bank of its memory, for ever", "0 a banks_without_spares 1", {"a": _course(0, S)}),
    Case(
        "... until it is another GPU's memory that is told of",
        "0 a banks_without_spares 2; 5000 a banks_without_spares 0",
        {"a": _course(0, S, 5600, H)},
    ),
    Case("on-chip memory past the driver's limit", "0 a sram_threshold true; 5000 boot true", {"a": _course(0, F)}),
    Case(
        "... and a person takes the blame, once for all",
        "0 a sram_threshold true; 5000 a override healthy; 5030 a sram_threshold true",
        {"a": _course(0, F, 5000, H)},
    ),
    Case(
        "a person who takes the blame for one thing takes it for that",
        "0 a sram_threshold true; 5000 a override healthy; 5030 a remap_failure true",
        {"a": _course(0, F, 5000, H, 5030, F)},
    ),
    Case("transfer errors on links, as many as DCGM allows", "0 a nvlink_errors_per_second 100", {}),
    Case(
        "transfer errors on links, more",
        "0 a nvlink_errors_per_second 101; 30 a nvlink_errors_per_second 40",
        {"a": _course(0, S, 630, H)},
    ),
    Case(
        "nine minutes of PCIe replays",
        "0 a pcie_replays_per_minute 60; 540 a pcie_replays_per_minute 0",
        {},
    ),
    Case(
        "eleven minutes of PCIe replays",
        "0 a pcie_replays_per_minute 9; 660 a pcie_replays_per_minute 8",
        {"a": _course(600, S, 1260, H)},
    ),
    Case(
        "ten minutes of PCIe replays, to the second",
        "0 a pcie_replays_per_minute 60; 600 a pcie_replays_per_minute 0",
        {"a": _course(600, S, 1200, H)},
    ),
    Case(
        "PCIe replays an hour later need their ten minutes anew",
        "0 a pcie_replays_per_minute 60; 700 a pcie_replays_per_minute 0; 5000 a pcie_replays_per_minute 60; "
        "5300 a pcie_replays_per_minute 0",
        {"a": _course(600, S, 1300, H)},
    ),
    Case(
        "PCIe replays with a break do not add up",
        "0 a pcie_replays_per_minute 9; 500 a pcie_replays_per_minute 0; 530 a pcie_replays_per_minute 9; "
        "1100 a pcie_replays_per_minute 0",
        {},
    ),
    Case(
        "as hot as it may be",
        "0 a temperature_margin 1; 30 a temperature_margin 0; 60 a temperature_margin -2; 90 a temperature_margin 5",
        {"a": _course(30, S, 690, H)},
    ),
    Case(
        "slow degradation: replays, then a storm, then an error, then no spare row",
        "0 a pcie_replays_per_minute 20; 1200 a ecc_corrected_per_second 2000; 3000 a xid 78; 9000 a remap_failure true",
        {"a": _course(600, S, 3000, Q, 3300, P, 6900, S, 9000, F)},
    ),
    Case(
        "what is closed for worse is not opened by what is over",
        "0 a ecc_corrected_per_second 2000; 10 a xid 79; 400 a ecc_corrected_per_second 0; 9000 boot true",
        {"a": _course(0, S, 10, Q, 9000, P, 12600, H)},
    ),
    Case(
        "a storm on one GPU is none of its neighbours'",
        "0 a ecc_corrected_per_second 9000; 1 b xid 43",
        {"a": _course(0, S)},
    ),
    # Links and fabrics.
    Case(
        "a link tells at both ends: the link is sick, no GPU",
        "0 a xid 74; 10 b xid 74; 9000 c xid 31",
        {"a": _course(0, Q, 10, H)},
    ),
    Case("one end tells", "0 a xid 74; 900 b xid 31; 901 c xid 31", {"a": _course(0, Q, 300, P, 3900, H)}),
    Case(
        "link errors of Blackwell are edges where the driver asks for nothing",
        "0 recovery_action 0; 5 a xid 149; 6 b xid 145; 6 b xid 45",
        {},
    ),
    Case(
        "the fabric takes all: closed, and no GPU's own fault",
        "0 a xid 78; 9000 a xid 78; 20000 a xid 151; 20001 b xid 151; 20002 c xid 151; 20003 d xid 151; 30000 driver_reload true",
        {
            "a": _course(0, Q, 300, P, 3900, H, 9000, Q, 9600, P, 13200, H, 20000, F, 20001, Q, 30000, P, 33600, H),
            "b": _course(20001, Q, 30000, P, 33600, H),
            "c": _course(20002, Q, 30000, P, 33600, H),
            "d": _course(20003, Q, 30000, P, 33600, H),
        },
    ),
    # People.
    Case("cordoned and let in again", "0 a override cordoned; 1000 a override null", {"a": _course(0, Q, 1000, H)}),
    Case(
        "a person says that it is well, and the next error is the first",
        "0 a xid 78; 1000 a xid 78; 1100 a override healthy; 9000 a xid 78",
        {"a": _course(0, Q, 300, P, 1000, Q, 1100, H, 9000, Q, 9300, P, 12900, H)},
    ),
    # What concerns several GPUs at once; the last three names make a node of five.
    Case(
        "an echo of a sibling's link error is held, and counts for nothing",
        "0 recovery_action 0; 5 a xid 151; 100 b xid 151; 5000 b xid 78; 5000 c xid 43; 5000 d xid 43; 5000 e xid 43",
        {
            "a": _course(5, Q, 305, P, 3905, H),
            "b": _course(100, Q, 400, P, 4000, H, 5000, Q, 5300, P, 8900, H),
        },
    ),
    Case(
        "two GPUs that fall sick by themselves count by themselves",
        "0 a xid 78; 10 b xid 78; 5000 b xid 78; 5000 c xid 43; 5000 d xid 43; 5000 e xid 43",
        {
            "a": _course(0, Q, 300, P, 3900, H),
            "b": _course(10, Q, 310, P, 3910, H, 5000, Q, 5600, P, 9200, H),
        },
    ),
    Case(
        "a link error is an echo of link errors only",
        "0 recovery_action 0; 1 a xid 78; 10 b xid 151; 5000 b xid 78; 5000 c xid 43; 5000 d xid 43; 5000 e xid 43",
        {
            "a": _course(1, Q, 301, P, 3901, H),
            "b": _course(10, Q, 310, P, 3910, H, 5000, Q, 5600, P, 9200, H),
        },
    ),
    Case(
        "another link error than the other end's reopens nothing",
        "0 recovery_action 0; 1 a xid 74; 10 b xid 151; 5000 c xid 43; 5000 d xid 43; 5000 e xid 43",
        {"a": _course(1, Q, 301, P, 3901, H), "b": _course(10, Q, 310, P, 3910, H)},
    ),
    Case(
        "both GPUs of a small node, again and again: whatever it is, it is not one of them",
        "0 a xid 78; 10 b xid 78; 5000 a xid 78; 5010 b xid 78; 9000 a xid 78; 9010 b xid 78",
        {
            "a": _course(0, Q, 300, P, 3900, H, 5000, Q, 5300, P, 8900, H, 9000, Q, 9300, P, 12900, H),
            "b": _course(10, Q, 310, P, 3910, H, 5010, Q, 5310, P, 8910, H, 9010, Q, 9310, P, 12910, H),
        },
    ),
    Case(
        "the driver asks for a reboot hours after one GPU's error",
        "0 recovery_action 0; 1 a xid 78; 9000 recovery_action 2; 9001 b xid 43; 20000 boot true",
        {
            "a": _course(1, Q, 301, P, 3901, H, 9000, Q, 20000, P, 23600, H),
            "b": _course(9000, S, 20000, H),
        },
    ),
    # And some more of one.
    Case("a link error on a driver that never says", "0 a xid 149", {"a": _course(0, Q, 300, P, 3900, H)}),
    Case("an uncorrected error that ended one program is told by its XID", "0 a xid 94; 5 a ecc_uncorrected 1", {}),
    Case(
        "heat that comes and goes adds up within ten minutes",
        "0 a throttled true; 200 a throttled false; 300 a throttled true; 700 a throttled false",
        {"a": _course(460, S, 940, H)},
    ),
    Case(
        "a reset cures it for a day, five times a week: the sixth time only a person's word counts",
        "; ".join(f"{day}00000 a xid 95; {day}00400 driver_reload true" for day in range(6))
        + "; 600000 a override healthy",
        {
            "a": _course(
                *(0, Q, 400, P, 4000, H),
                *(100000, Q, 100400, P, 104000, H),
                *(200000, Q, 200400, P, 204000, H),
                *(300000, Q, 300400, P, 304000, H),
                *(400000, F, 400400, P, 404000, H),
                *(500000, F, 600000, H),
            )
        },
    ),
    Case(
        "resets of a GPU that is well are no repairs",
        "; ".join(f"{hour}000 driver_reload true" for hour in range(8)) + "; 9000 a xid 95; 9400 driver_reload true",
        {"a": _course(9000, Q, 9400, P, 13000, H)},
    ),
]
