/* `tessera-replay run --mig-workload`: mixes of profiles, and the comparison of policies. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "replay/command.h"
#include "replay/mig.h"
#include "replay/mig_bound.h"
#include "replay/stat.h"

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

/* Rounded to four places. */
static bool put(cJSON *o, const char *key, double v)
{
	return cJSON_AddNumberToObject(o, key, round(v * 1e4) / 1e4) != NULL;
}

/* Mean and deviation; null for the one that a single seed does not have. */
static bool put_spread(cJSON *o, const char *key, const struct spread *s, bool known)
{
	cJSON *pair = cJSON_AddArrayToObject(o, key);

	return pair != NULL &&
	       cJSON_AddItemToArray(pair, cJSON_CreateNumber(round(s->mean * 1e4) / 1e4)) &&
	       cJSON_AddItemToArray(pair,
				    known ? cJSON_CreateNumber(round(s->deviation * 1e4) / 1e4)
					  : cJSON_CreateNull());
}

/* A new object for the policy; NULL: no memory. */
static cJSON *put_policy(cJSON *list, const char *policy)
{
	cJSON *o = cJSON_CreateObject();

	if (o == NULL || !cJSON_AddItemToArray(list, o)) {
		cJSON_Delete(o);
		return NULL;
	}
	return cJSON_AddStringToObject(o, "policy", policy) != NULL ? o : NULL;
}

static bool put_line(cJSON *list, const char *policy, const struct spread s[static 6], bool spreads,
		     bool strands)
{
	cJSON *o = put_policy(list, policy);

	return o != NULL && put(o, "placed_percent", s[0].mean) &&
	       put(o, "units_percent", s[5].mean) &&
	       put_spread(o, "placed_more_percent", &s[2], spreads) &&
	       put_spread(o, "units_more_percent", &s[3], spreads) &&
	       (!strands || (put(o, "stranded_units", s[1].mean) &&
			     put_spread(o, "stranded_more_percent", &s[4], spreads)));
}

/* One row, into the list where there is one. policy NULL: the bound. False: no memory. */
static bool print_row(const struct rp_mig_args *a, const struct rp_mig_result *r,
		      const struct rp_mig_result *base, const struct po_policy *p, cJSON *list)
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
	if (list != NULL)
		return put_line(list, policy, s, a->seed_count > 1, p != NULL);
	print_line(policy, s, a->seed_count > 1, p != NULL);
	return true;
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

static bool put_best(cJSON *list, const struct rp_mig_best *b)
{
	cJSON *best = put_policy(list, "(best)"), *refusing = put_policy(list, "(best, refusing)");

	return best != NULL && refusing != NULL && put(best, "placed_percent", b->workloads) &&
	       put(best, "units_percent", b->units) && put(best, "stranded_units", b->stranded) &&
	       put(best, "stranded_units_firstfit", b->stranded_first_fit) &&
	       put(refusing, "placed_percent", b->refusing_workloads) &&
	       put(refusing, "units_percent", b->refusing_units);
}

static int print_best(const struct rp_mig_options *o, cJSON *list, struct err *err)
{
	struct rp_mig_best b;
	int rc = rp_mig_best_of_two(o->geometry, o->mix, o->load_permille, &b, err);

	if (rc < 0)
		return rc;
	if (list != NULL)
		return put_best(list, &b) ? 0 : err_set(err, ERR_NOMEM, "out of memory");
	printf("\nat most, in the long run: %.2f %% of the workloads, or %.2f %% of the units, "
	       "who places what fits;\n%.2f %%, or %.2f %%, who may refuse it "
	       "(proven to within %.2f)\n"
	       "stranded at least, who places what fits: %.3f units, %.1f %% less than firstfit's "
	       "%.3f (to within %.4f)\n",
	       b.workloads, b.units, b.refusing_workloads, b.refusing_units, b.width, b.stranded,
	       -percent_more(b.stranded, b.stranded_first_fit), b.stranded_first_fit,
	       b.stranded_width);
	return 0;
}

static void print_head(const struct rp_mig_args *a, const struct rp_mig_options *o)
{
	char nodes[RP_TEXT_CAP], gpus[RP_TEXT_CAP], seeds[RP_TEXT_CAP];

	printf("%s with %s each (%s), %s, load %" PRId64 ".%03" PRId64
	       ", %s\nplaced and units: %% of what arrived; then %% more than %s, mean and "
	       "deviation\n\n"
	       "policy     placed  units stranded         placed          units        "
	       "stranded\n",
	       rp_text_many(o->nodes, "node", nodes), rp_text_many(o->gpus_per_node, "GPU", gpus),
	       o->geometry->model, o->mix->name, o->load_permille / 1000, o->load_permille % 1000,
	       rp_text_many((int64_t)a->seed_count, "seed", seeds), a->policies[0]->name);
}

/* The table, or the list where there is one. */
static int print_rows(const struct rp_mig_args *a, const struct rp_mig_options *o,
		      const struct rp_mig_result *results, cJSON *list, struct err *err)
{
	if (list == NULL)
		print_head(a, o);
	for (size_t k = 0; k < rows(a, o); k++)
		if (!print_row(a, &results[k * a->seed_count], results,
			       k < a->policy_count ? a->policies[k] : NULL, list))
			return err_set(err, ERR_NOMEM, "out of memory");
	return a->bounds && a->gpus == 2 ? print_best(o, list, err) : 0;
}

static int print_all(const struct rp_mig_args *a, const struct rp_mig_options *o,
		     const struct rp_mig_result *results, struct err *err)
{
	cJSON *list = a->json ? cJSON_CreateArray() : NULL;
	char *text;
	int rc;

	if (a->json && list == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	rc = print_rows(a, o, results, list, err);
	if (rc == 0 && list != NULL) {
		text = cJSON_Print(list);
		if (text != NULL)
			puts(text);
		else
			rc = err_set(err, ERR_NOMEM, "out of memory");
		free(text);
	}
	cJSON_Delete(list);
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
