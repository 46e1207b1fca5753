/* The table of subcommands. */
#include "replay/command.h"

static const struct rp_command commands[] = {
	{"run",
	 "--nodes FILE --pods FILE [--policy NAME,...|all] [--order FILE | --seed N,...] [...]",
	 "Places the pods of a trace on the nodes of a cluster and compares policies.", rp_cmd_run},
	{"plan", "--pods FILE --node-type FIELDS [--node-type FIELDS ...] [--success R] [...]",
	 "Finds the cheapest cluster of given node types that places a workload.", rp_cmd_plan},
	{"whatif", "--nodes FILE --pods FILE [--add-nodes N:FIELDS] [--switch FROM:TO:SHARE] [...]",
	 "Shows a workload on a cluster before and after a change.", rp_cmd_whatif},
	{"defrag", "--cluster FILE (--for FIELDS | --free-nodes N) [--kubectl] [...]",
	 "Plans which pods to move to make room for a request, or to free nodes.", rp_cmd_defrag},
	{"sizing", "--usage FILE [--margin R] [...]",
	 "Compares requests with measured peaks: who asked for too much, what it would free.",
	 rp_cmd_sizing},
	{"drive", "--extender URL --nodes FILE --pods FILE [--order FILE | --seed N] [...]",
	 "Acts as a small kube-scheduler: asks a running extender to filter, prioritize and bind.",
	 rp_cmd_drive},
	{"map", "--extender URL [--rows N]",
	 "Shows every GPU of a running extender's cluster in the terminal.", rp_cmd_map},
	{"cluster", "--nodes FILE",
	 "Prints a node table as the JSON that tessera-extender --cluster reads.", rp_cmd_cluster},
	{"generate", "--kind nodes|pods [--count N] [--seed N] [...]",
	 "Prints a made-up node or pod table with the published distribution of openb.",
	 rp_cmd_generate},
};

const struct rp_command *rp_command_at(size_t i)
{
	return i < sizeof(commands) / sizeof(commands[0]) ? &commands[i] : NULL;
}
