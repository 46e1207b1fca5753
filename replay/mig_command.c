/* `tessera-replay run --mig-workload`: mixes of profiles, and the comparison of policies. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "replay/command.h"
#include "replay/mig.h"
#include "replay/mig_bound.h"

#define SIZES 5
#define STAYS_WARM 5

/* ---- mixes ---- */

/* Weights of the plain profiles from the smallest to the largest: of five, as 7-slice GPUs have (1g, 2g,
 * 3g, 4g, 7g), or of three (1g, 2g, 4g). Instances with more memory than their slices have none. */
static const struct {
	const char *name;
	int64_t of_five[SIZES], of_three[3];
} named[] = {
	{"uniform", {1, 1, 1, 1, 1}, {1, 1, 1}}, {"small", {10, 5, 3, 1, 1}, {10, 4, 1}},
	{"large", {1, 2, 4, 5, 8}, {1, 3, 6}},   {"bimodal", {9, 1, 1, 1, 8}, {5, 1, 4}},
	{"middle", {2, 7, 7, 3, 1}, {2, 7, 1}},  {"ends", {6, 0, 0, 4, 0}, {6, 0, 4}},
	{"thirds", {6, 0, 4, 0, 0}, {6, 4, 0}},
};

/* Plain profiles, the smallest first; of those with equal compute slices the one with least memory. */
static int plain_profiles(const struct st_mig_geometry *g, int out[ST_MIG_PROFILES_MAX])
{
	int n = 0;

	for (int slices = 1; slices <= g->compute_total; slices++) {
		int best = -1;

		for (int p = 0; p < g->profile_count; p++)
			if (g->profiles[p].attrs == 0 && g->profiles[p].start_count > 0 &&
			    g->profiles[p].compute_slices == slices &&
			    (best < 0 || st_mig_smaller(g, p, best)))
				best = p;
		if (best >= 0)
			out[n++] = best;
	}
	return n;
}

static int parse_pairs(const struct st_mig_geometry *g, const char *text, struct rp_mig_mix *ret,
		       struct err *err)
{
	for (const char *s = text;;) {
		size_t len = strcspn(s, ","), name = strcspn(s, "=");
		char profile[ST_MIG_NAME_CAP] = "", number[20] = "";
		int64_t weight = 0;
		int p = -1;

		if (name < len && name < sizeof(profile) && len - name - 1 < sizeof(number)) {
			memcpy(profile, s, name);
			memcpy(number, s + name + 1, len - name - 1);
			p = st_mig_profile_find(g, profile);
		}
		if (p < 0 || g->profiles[p].start_count == 0 ||
		    integer_parse(number, 1, 100000, &weight, NULL) < 0)
			return err_set(err, ERR_INVALID,
				       "--mig-workload: \"%.*s\" is neither a mix nor "
				       "PROFILE=WEIGHT of %s",
				       len < 64 ? (int)len : 64, s, g->model);
		ret->weight[p] += weight;
		ret->total += weight;
		if (s[len] == '\0')
			return 0;
		s += len + 1;
	}
}

int rp_mig_mix_parse(const struct st_mig_geometry *g, const char *text, struct rp_mig_mix *ret,
		     struct err *err)
{
	struct rp_mig_mix mix = {0};
	int plain[ST_MIG_PROFILES_MAX], n = plain_profiles(g, plain), rc = 0;
	size_t i = 0;

	while (i < sizeof(named) / sizeof(named[0]) && strcmp(named[i].name, text) != 0)
		i++;
	snprintf(mix.name, sizeof(mix.name), "%s", text);
	if (i == sizeof(named) / sizeof(named[0])) {
		rc = parse_pairs(g, text, &mix, err);
	} else if (n != SIZES && n != 3) {
		rc = err_set(err, ERR_INVALID, "--mig-workload: \"%s\" needs PROFILE=WEIGHT for %s",
			     text, g->model);
	} else {
		for (int k = 0; k < n; k++) {
			mix.weight[plain[k]] =
				n == SIZES ? named[i].of_five[k] : named[i].of_three[k];
			mix.total += mix.weight[plain[k]];
		}
	}
	if (rc == 0)
		*ret = mix;
	return rc;
}

/* ---- the comparison ---- */

struct spread {
	double mean, deviation;
};

static struct spread spread_of(const double *v, size_t n)
{
	struct spread s = {0, 0};

	for (size_t i = 0; i < n; i++)
		s.mean += v[i] / (double)n;
	for (size_t i = 0; i < n; i++)
		s.deviation += (v[i] - s.mean) * (v[i] - s.mean);
	s.deviation = n > 1 ? sqrt(s.deviation / (double)(n - 1)) : 0;
	return s;
}

static double percent_more(double a, double b)
{
	return b > 0 ? (a / b - 1) * 100 : 0;
}

static const char *deviation(char text[static 12], const struct spread *s, bool known)
{
	if (!known)
		return "+-    -";
	snprintf(text, 12, "+-%5.2f", s->deviation);
	return text;
}

/* 79 columns; one seed has no deviation, the bound strands nothing. */
static void print_line(const char *policy, const struct spread s[static 6], bool spreads,
		       bool strands)
{
	char d[3][12];

	printf("%-10s %6.2f %6.2f ", policy, s[0].mean, s[5].mean);
	if (strands)
		printf("%8.3f ", s[1].mean);
	else
		printf("%8s ", "-");
	printf("%+6.2f %s %+6.2f %s ", s[2].mean, deviation(d[0], &s[2], spreads), s[3].mean,
	       deviation(d[1], &s[3], spreads));
	if (strands)
		printf("%+7.2f %s\n", s[4].mean, deviation(d[2], &s[4], spreads));
	else
		printf("%7s\n", "-");
}

/* policy NULL: the bound. */
static void print_row(const struct rp_mig_args *a, const struct rp_mig_result *r,
		      const struct rp_mig_result *base, const struct po_policy *p)
{
	const char *policy = p != NULL ? p->name : "(movable)";
	double v[6][RP_SEEDS_MAX];
	struct spread s[6];

	for (size_t i = 0; i < a->seed_count; i++) {
		v[0][i] = 100.0 * (double)r[i].placed / (double)r[i].arrivals;
		v[1][i] = r[i].stranded;
		v[2][i] = percent_more((double)r[i].placed, (double)base[i].placed);
		v[3][i] = percent_more((double)r[i].units_placed, (double)base[i].units_placed);
		v[4][i] = percent_more(r[i].stranded, base[i].stranded);
		v[5][i] = 100.0 * (double)r[i].units_placed / (double)r[i].units_arrived;
	}
	for (int k = 0; k < 6; k++)
		s[k] = spread_of(v[k], a->seed_count);
	if (a->json)
		printf("{\"policy\":\"%s\",\"placed_percent\":%.3f,\"units_percent\":%.3f,"
		       "\"stranded_units\":%.4f,\"placed_more_percent\":[%.3f,%.3f],\"units_more_percent\":[%.3f,%.3f],"
		       "\"stranded_more_percent\":[%.3f,%.3f]}",
		       policy, s[0].mean, s[5].mean, s[1].mean, s[2].mean, s[2].deviation,
		       s[3].mean, s[3].deviation, s[4].mean, s[4].deviation);
	else
		print_line(policy, s, a->seed_count > 1, p != NULL);
}

/* The policies, and the bound where it is asked for and known. */
static size_t rows(const struct rp_mig_args *a, const struct rp_mig_options *o)
{
	return a->policy_count + (a->bounds && rp_mig_packs_known(o->geometry, o->mix));
}

static int run_all(const struct rp_mig_args *a, struct rp_mig_options *o,
		   struct rp_mig_result *results, struct err *err)
{
	int rc = 0;

	for (size_t k = 0; rc == 0 && k < rows(a, o); k++)
		for (size_t i = 0; rc == 0 && i < a->seed_count; i++) {
			o->policy = k < a->policy_count ? a->policies[k] : NULL;
			o->seed = a->seeds[i];
			rc = rp_mig_run(o, &results[k * a->seed_count + i], err);
		}
	return rc;
}

static int print_best(const struct rp_mig_args *a, const struct rp_mig_options *o, struct err *err)
{
	struct rp_mig_best b;
	int rc = rp_mig_best_of_two(o->geometry, o->mix, o->load_permille, &b, err);

	if (rc < 0)
		return rc;
	if (a->json)
		printf(",{\"policy\":\"(best)\",\"placed_percent\":%.3f,\"units_percent\":%.3f},"
		       "{\"policy\":\"(best, refusing)\",\"placed_percent\":%.3f,"
		       "\"units_percent\":%.3f}",
		       b.workloads, b.units, b.refusing_workloads, b.refusing_units);
	else
		printf("\nat most, in the long run: %.2f %% of the workloads, or %.2f %% of the units, "
		       "who places what fits;\n%.2f %%, or %.2f %%, who may refuse it "
		       "(proven to within %.2f)\n",
		       b.workloads, b.units, b.refusing_workloads, b.refusing_units, b.width);
	return 0;
}

static int print_all(const struct rp_mig_args *a, const struct rp_mig_options *o,
		     const struct rp_mig_result *results, struct err *err)
{
	int rc = 0;

	if (a->json)
		printf("[");
	else
		printf("%u nodes with %u GPUs each (%s), %s, load %" PRId64 ".%03" PRId64
		       ", %zu seeds\nplaced and units: %% of what arrived; then %% more than %s, mean and deviation\n\n"
		       "policy     placed  units stranded         placed          units        "
		       "stranded\n",
		       o->nodes, o->gpus_per_node, o->geometry->model, o->mix->name,
		       o->load_permille / 1000, o->load_permille % 1000, a->seed_count,
		       a->policies[0]->name);
	for (size_t k = 0; k < rows(a, o); k++) {
		if (a->json && k > 0)
			printf(",");
		print_row(a, &results[k * a->seed_count], results,
			  k < a->policy_count ? a->policies[k] : NULL);
	}
	if (a->bounds && a->gpus == 2)
		rc = print_best(a, o, err);
	if (a->json)
		printf("]\n");
	return rc;
}

static int options_fill(const struct rp_mig_args *a, struct rp_mig_options *o,
			struct rp_mig_mix *mix, struct err *err)
{
	int32_t mem = 0;
	int rc;

	o->product = a->product != NULL ? a->product : "NVIDIA A100-SXM4-40GB";
	o->geometry = st_mig_table_find(o->product, 0);
	if (o->geometry == NULL)
		return err_set(err, ERR_INVALID,
			       "--mig-product: no MIG geometry is known of \"%s\"", o->product);
	rc = rp_mig_mix_parse(o->geometry, a->workload, mix, err);
	if (rc < 0)
		return rc;
	for (int p = 0; p < o->geometry->profile_count; p++)
		if (o->geometry->profiles[p].mem_mib > mem)
			mem = o->geometry->profiles[p].mem_mib;
	if (a->gpus % a->gpus_per_node != 0)
		return err_set(err, ERR_INVALID,
			       "--mig-gpus: \"%" PRId64 "\" is no multiple of the %" PRId64
			       " of a node",
			       a->gpus, a->gpus_per_node);
	o->mix = mix;
	o->mem_mib = mem > 0 ? mem : 1024;
	o->nodes = (uint32_t)(a->gpus / a->gpus_per_node);
	o->gpus_per_node = (uint32_t)a->gpus_per_node;
	o->load_permille = a->load_nano / 1000000;
	o->warm = STAYS_WARM;
	o->length = (uint32_t)a->length;
	o->online = a->online;
	return 0;
}

int rp_mig_command(const struct rp_mig_args *a)
{
	struct rp_mig_options o = {0};
	struct rp_mig_mix mix;
	struct rp_mig_result *results;
	struct err err = ERR_INIT;
	int rc = options_fill(a, &o, &mix, &err);

	if (rc < 0)
		return rp_command_failed(rc, &err);
	results = calloc(rows(a, &o) * a->seed_count, sizeof(*results));
	if (results == NULL) {
		(void)err_set(&err, ERR_NOMEM, "out of memory");
		return rp_command_failed(ERR_NOMEM, &err);
	}
	rc = run_all(a, &o, results, &err);
	if (rc == 0)
		rc = print_all(a, &o, results, &err);
	if (rc == 0 && (fflush(stdout) != 0 || ferror(stdout)))
		rc = err_set(&err, ERR_IO, "cannot write to standard output");
	free(results);
	return rc == 0 ? RP_EXIT_OK : rp_command_failed(rc, &err);
}
