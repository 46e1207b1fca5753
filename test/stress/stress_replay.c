/* Replays side by side: filling up, over time and on a cluster in JSON, eight threads on the same trace.
 * The sums must be those of one thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replay/batch.h"

static int run(const char *nodes, const char *pods, const struct rp_time_plan *time, int64_t jobs,
	       uint32_t crc[64], size_t *count)
{
	struct rp_inputs in = {.nodes_path = nodes,
			       .pods_path = pods,
			       .seeds_text = "1-4",
			       .inflate_nano = RP_INFLATE_DEFAULT,
			       .quiet = true};
	struct rp_batch b = {.in = &in, .time = time, .jobs = jobs, .ties_count = 1, .why = true};
	struct rp_result *results;
	struct rp_sim_result *sims;
	struct err err = ERR_INIT;
	struct rp_trace t;
	int status, rc;

	rp_policies_parse("ca-fgd,bestfit,random", b.policies, &b.policy_count, &err);
	rp_seeds_parse(in.seeds_text, b.seeds, &b.seed_count, &err);
	rp_trace_init(&t);
	if (!rp_inputs_load(&in, &t, &status))
		return -1;
	b.t = &t;
	*count = rp_batch_count(&b);
	results = calloc(*count, sizeof(*results));
	sims = calloc(*count, sizeof(*sims));
	rc = results != NULL && sims != NULL ? rp_batch_run(&b, results, sims, &err) : ERR_NOMEM;
	for (size_t i = 0; rc == 0 && i < *count; i++)
		crc[i] = time != NULL ? sims[i].placements_crc32 : results[i].placements_crc32;
	if (rc < 0)
		fprintf(stderr, "%s\n", err.msg);
	free(results);
	free(sims);
	rp_trace_fini(&t);
	return rc;
}

int main(void)
{
	struct rp_time_plan time = {.made = true, .how = RP_MADE_DEFAULT};
	static const struct {
		const char *nodes, *pods;
		bool timed;
	} rows[] = {
		{"test/golden/small/nodes.csv", "test/golden/small/pods.csv", false},
		{"test/golden/small/nodes.csv", "test/golden/small/pods.csv", true},
		{"deploy/demo/cluster.json", "deploy/demo/pods.json", false},
	};

	time.how.count = 500;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint32_t one[64] = {0}, many[64] = {0};
		size_t count = 0;

		if (run(rows[i].nodes, rows[i].pods, rows[i].timed ? &time : NULL, 1, one, &count) <
			    0 ||
		    run(rows[i].nodes, rows[i].pods, rows[i].timed ? &time : NULL, 8, many,
			&count) < 0 ||
		    memcmp(one, many, sizeof(one)) != 0 || count == 0 || one[0] == 0) {
			fprintf(stderr, "row %zu: not what one thread gives\n", i);
			return 1;
		}
	}
	printf("replays side by side: ok\n");
	return 0;
}
