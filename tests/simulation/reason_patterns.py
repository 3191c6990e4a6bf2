"""The forms of the sentences that say why a gang is pending, and where their numbers stand."""

import re

PLAIN = (  # no numbers
    r"can never start: MIG slices cannot be kept to one island, NUMA node or PCIe switch; require node or a wider level",
    r"each pod type fits on its own, but not all together",
    r"each subgroup fits on its own, but not all together",
    r"search limit reached; a placement may exist",
    r"the cluster has no nodes( \([^()]*\))?",
    r"can never start: topology level \S+ is not one of .*",
    r"could not bind pod .*",
    r"(search budget exhausted|the search for victims exhausted its budget), retrying with a larger one",
    r"(largest search budget exhausted|the search for victims exhausted its largest budget), retrying in 2 min",
    r"fits now; its pods are bound in the next cycle",
    r"reserved: .*",
    r"expected in .*",
    r"preempted by [^;]*",
    r"suspended for [^;]* after its quantum.*",
    r"it shares time and is not behind its fair share; others may be suspended for it in .*",
    r"it is behind its fair share(; running gangs are suspended for [^;]* of its queue first|, .*)",
    r"running gangs are suspended for it in .* at the latest, unless other gangs get ahead of it",
    r"preemption blocked by [^;]*",
    r"its victims hold \d+ times what it needs or more: these are evicted once it has waited for [^;]*",
    r"a gang with lockstep\.dev/runs-for of at most \d+ (min|h|days) may use that before",
    r"excluding (capacity|volumes) reserved for [^;]*",
    r"queue \S+( \(above \S+\))? is (closed|invalid: .*)",
    r"queue \S+ does not exist(; did you mean \S+\?)?",
    r"queue \S+: its parent .*",
    r"queue \S+ is not a leaf; .*",
    r"queue \S+ is first in, first out; .* is ahead of it",
    r"namespace \S+ may not use queue .*",
    r"PodGroup \S+ does not exist in namespace \S+",
    r"spec\.priorityClassName: .*",
    r"claim \S+ .*",
    r"is bound to volume .*",
    r"task \S+ needs .*",
    r"reduce the request or raise the capability",
)

_PROTECTED = r"(: \d+ pods? (?:[^,;:]|:\d)*?(, \d+ pods? (?:[^,;:]|:\d)*?)*)?"
_USES = r"queue \S+ uses \S+ [^,;]+?, above its (fair share of|deserved) \S+"
NO_VICTIMS = (
    r"(queue \S+( \(above \S+\))? would use \S+ .*?, and its fair share is \S+"
    rf"|({_USES}, )*{_USES}(, \.\.\.)?, but evicting every (gang|member above a minimum) that may be evicted would not let it start{_PROTECTED}"
    rf"|({_USES}, and is not reclaimable(; )?)+|no other queue uses more than its share"
    r"|queues reclaim deserved amounts and guarantees only: queue \S+ would use [^,;]+?, and (deserves|its fair share is) \S+)?(, and )?"
    rf"(evicting all gangs of its queue with priority below \d+ would not free enough{_PROTECTED})?"
)

BRIEF_ENOUGH = re.compile(r"; a gang with lockstep\.dev/runs-for of at most (\S+ \S+) may")
UNITS_WHEN_EMPTY = re.compile(r"even if empty, .* fits? (?:more than )?(\d+) (?:sub)?groups?")
WRONG_PLURAL = re.compile(
    r"(?<![\w/.-])(?:(?<!\d of )1 (?:more )?(?:pods|nodes|groups|subgroups|gangs|GPUs)|(?!1 )\d+ (?:pod|node|group|subgroup|gang|GPU))(?![\w-])|(?<![\w/.-])1 (?:more )?are\b|(?<![\w/.-])(?!1 )\d+ (?:more )?is\b"
)
Found = re.Match[str]
PART_OF_ONE = re.compile(
    r"no node(?: that they may use)? has (\d+) GPUs (?:in|under) one (.+?), the most is (\d+)"
)
PARTS = ("island", "NUMA node", "PCIe switch")  # of a node
KINDS = r"\d+ pods?(?: (?:x|with|and) [^;]+?)?"
PODS = rf"(?P<part>one (?:subgroup|group of subgroups) )?needs (?P<pods>{KINDS})(?: (?:in|under) one (?P<level>[^;]+?))?; (?=(?P<rest>.*))"
AFTER = (
    r"(?:reserved|excluding|a gang with|preemption blocked|its victims|expected|no victims"
    r"|it shares time|it is behind|running gangs|the search for victims)"
)
CANDIDATE = re.compile(
    r"(?:the best node|the cluster|best candidate (?:node )?(?P<best>\S+)|(?P<at>.+?), where the rest"
    r" of the \w+ is,) fits (?P<fits>\d+) of (?P<count>\d+)(?: (?:(?:sub)?groups?|(?P<kind>pods?(?: (?:x|with) [^;(]*?)?)))?(?: \((?P<details>.*?)\))?"
    r"(?:; (?P<never>can never start: .*?))?(?:$|; (?=" + AFTER + "))"
)
WITH_THE_REST = re.compile(  # the domain of the members that run
    r"(?:the (?:island|NUMA node|PCIe switch) of )?\S+ (?P<names>\S+), where the rest of the (?P<unit>\w+) is, "
)
NOWHERE = re.compile(  # they are in several domains, or in none
    r"the rest of the (?P<unit>\w+) is (?:on|in) (?:\S+ (?P<name>[^\s,;]+)|(?P<count>\d+) \S+: (?P<names>[^;]*?))"
    r"(?P<outside>, which (?:is|are) in no \S+?)?(?:$|; )"
)
CERTAIN = re.compile(rf"(?P<certain>can never start: .*?)(?:$|; (?={AFTER}))")
TOGETHER = r"(\d+) of (\d+) fit together under [^;(]*?(?: \((?:[^()]|\([^()]*\))*\))?(?:$|; )"
SHARED_NEVER = re.compile(
    r"by their (?P<rule>anti-affinity|host port) no two of (?P<pods>\d+) pods may share a (?P<noun>\S+), and "
    r"(?:they may use (?P<most>\d+) \S+|no (?P<level>.+?) has more than (?P<inside>\d+) \S+ that they may use"
    r"|all must be (?:in|under) one (?P<place>.+))"
)
FREE_GPUS = re.compile(
    r"(\d+) of (\d+) GPUs free on (\d+) nodes?(?:, at most (?P<most>\d+) on one)?"
    r"(?:, at most (?P<part>\d+) (?:in|under) one (?P<noun>island|NUMA node|PCIe switch))?"
    r"(?:, (?P<ill>\d+) more unhealthy or not offered)?"
    r"(?:, (?P<kept>\d+) of them reserved for (?P<owners>.*))?"
)
LACKING = re.compile(r"(\d+) nodes? (?:ha(?:s|ve) GPUs free and |also )?lacks? .*")

_QUEUE = r"queue (?P<queue>\S+?)(?: \(above \S+\))?"
# Each pattern with the method of ReasonChecker that counts its numbers.
CHECKS: tuple[tuple[str, str], ...] = (
    (r"needs (\d+) pods to start, (\d+) exist(?:$|; )", "minimum"),
    (r"needs (\d+) more pods? to start, (\d+) pending(?:$|; )", "more_pods"),
    (
        r"subGroupPolicy (?P<policy>\S+) needs (?P<least>\d+) subgroups? of (?P<size>\d+) pods? to start,"
        r" the existing pods complete (?P<whole>\d+)(?:$|; )",
        "whole_subgroups",
    ),
    (
        r"(?:needs (?P<more>\d+) more pods? in complete subgroups to start; )?(?:(?P<pending>\d+)"
        r" pending|subgroup (?P<name>\S+) has (?P<exist>\d+) of (?P<size>\d+) pods)(?:$|; )",
        "pods_of_subgroup",
    ),
    (r"(\d+) of (\d+) pods are held by scheduling gates(?: \([^)]*\))?(?:$|; )", "gated"),
    (
        rf"{_QUEUE} uses (?P<used>\S+) of its (?P<noun>capability|deserved amount plus borrowingLimit) of (?P<most>\S+) (?P<resource>\S+?)"
        r"(?:, \S+ (?:is|are) reserved \(minResources\))?"
        r"(?:, \S+ (?:is|are) kept for gangs whose victims terminate)?; \S+ more (?:is|are) needed(?:$|; )",
        "capability",
    ),
    (
        rf"can never start: {_QUEUE} has a (?P<noun>capability|deserved amount plus borrowingLimit) of (?P<most>\S+) (?P<resource>\S+?);"
        r" \S+ (?:is|are) needed; ",
        "capability",
    ),
    (
        rf"(?P<never>can never start: )?(?:(?P<whose>[^;]+?) in )?{_QUEUE} runs (?P<running>\d+) gangs?"
        r"(?P<claimed>, and keeps \d+ for gangs whose victims terminate)?, and may run"
        r" (?P<most>\d+) at a time(?:$|; )",
        "running_gangs",
    ),
    (
        rf"(?P<never>can never start: )?(?P<whose>[^;]+?) in {_QUEUE} (?:uses (?P<used>\S+) of its|may use)"
        r" (?P<most>\S+) (?P<resource>[^\s,;]+)(?P<claimed>, \S+ (?:is|are) kept for gangs whose victims terminate)?; (?P<need>\S+) (?:more )?(?:is|are) needed(?:$|; )",
        "tenant_amounts",
    ),
    (
        rf"(?P<never>can never start: )?gangs that are not preemptable may use the deserved (?P<most>\S+) (?P<resource>\S+?)"
        rf" of {_QUEUE}, and use (?P<used>[^\s,;]+)(?P<claimed>, \S+ (?:is|are) kept for gangs whose victims terminate)?; (?P<need>\S+) more (?:is|are) needed(?:$|; )",
        "deserved_by_the_unpreemptable",
    ),
    (
        r"needs \S+ (?P<resource>\S+); (?P<free>\S+) (?:is|are) free, of which (?P<kept>\S+) (?:is|are) guaranteed"
        r" to queues? (?P<queues>[^;]*?)(?P<claimed> and \S+ (?:is|are) kept for gangs whose victims terminate)?(?:$|; )",
        "guaranteed",
    ),
    (
        r"needs \S+ (?P<resource>\S+(?: slices?)?)(?: \(spec\.minResources[^)]*\))?; the cluster has"
        r" (?P<free>\S+) free(?:, of which \S+ (?:is|are) reserved for [^;]* \(minResources\))?(?:$|; )",
        "min_resources",
    ),
    (
        r"(?P<part>one group of subgroups )?needs (?P<copies>(?:\d+ groups? of )*\d+ subgroups?) of"
        r" (?P<size>\d+) pods?(?: x [^,;]+?)?"
        r"(?P<each>(?:, each (?:group |subgroup )?(?:in|under) one [^,;]+?)*)"
        r"(?:, all (?:in|under) one (?P<all>[^;]+?))?; (?=(?P<rest>.*))",
        "equal_subgroups",
    ),
    (
        r"(?P<part>one group of subgroups )?needs (?P<pods>\d+ pods?[^;]*?) in (?P<groups>\d+) subgroups?"
        r"(?: (?:in|under) one (?P<level>[^;]+))?; (?=each subgroup fits|search limit)",
        "unlike_subgroups",
    ),
    (PODS, "placement"),
)
