#include "replay/report_time.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "replay/report.h"
#include "replay/stat.h"

/* GPU hours, in hundredths, from milli of a GPU * seconds. */
static int64_t hours_centi(int64_t gpu_s)
{
	return rp_round_div((__int128)gpu_s * 100, INT64_C(3600) * RP_GPU_UNITS);
}

static int64_t part_centi(int64_t part, int64_t whole)
{
	return whole > 0 ? rp_round_div((__int128)part * 10000, whole) : RP_NO_VALUE;
}

/* ---- table ---- */

#define TABLE_WIDTH 142

enum { PLACED, REFUSED, OPEN, USED, FRAG, LOST, WAITED, MEAN, P50, P95, P99, LONGEST, COLUMNS };

struct row {
	struct rp_stat v[COLUMNS];
	double seconds;
};

static void row_add(struct row *w, const struct rp_sim_result *r)
{
	const int64_t v[COLUMNS] = {
		[PLACED] = (int64_t)(r->at_once + r->waited),
		[REFUSED] = (int64_t)r->refused,
		[OPEN] = (int64_t)r->unfinished,
		[USED] = r->used_centi,
		[FRAG] = r->frag_centi,
		[LOST] = part_centi(r->refused_gpu_s, r->asked_gpu_s),
		[WAITED] = hours_centi(r->waited_gpu_s),
		[MEAN] = r->wait_mean_ms,
		[P50] = r->wait_p50_ms,
		[P95] = r->wait_p95_ms,
		[P99] = r->wait_p99_ms,
		[LONGEST] = r->wait_max_ms,
	};

	for (int i = 0; i < COLUMNS; i++)
		rp_stat_add(&w->v[i], v[i]);
	w->seconds += r->wall_s;
}

static const struct {
	const char *name;
	int width;
	bool narrow; /* shown on a narrow screen, too */
	const char *(*text)(int64_t v, char buf[RP_TEXT_CAP]);
} columns[COLUMNS] = {
	[PLACED] = {"placed", 8, true, rp_text_count},
	[REFUSED] = {"refused", 8, true, rp_text_count},
	[OPEN] = {"waiting", 8, false, rp_text_count},
	[USED] = {"used %", 7, true, rp_text_centi},
	[FRAG] = {"frag %", 7, false, rp_text_centi},
	[LOST] = {"lost %", 7, true, rp_text_centi},
	[WAITED] = {"GPU h wait", 11, false, rp_text_centi},
	[MEAN] = {"wait", 8, true, rp_text_time},
	[P50] = {"p50", 8, false, rp_text_time},
	[P95] = {"p95", 8, true, rp_text_time},
	[P99] = {"p99", 8, false, rp_text_time},
	[LONGEST] = {"longest", 8, false, rp_text_time},
};

static void row_print(FILE *out, const struct rp_sim_result *r, const char *seed,
		      const struct row *w, bool narrow, int64_t (*value)(const struct rp_stat *))
{
	char buf[RP_TEXT_CAP];

	fprintf(out, "%-11s %-6s %6s", r->policy, rp_ties_name(r->ties), seed);
	for (int i = 0; i < COLUMNS; i++)
		if (!narrow || columns[i].narrow)
			fprintf(out, " %*s", columns[i].width,
				columns[i].text(value(&w->v[i]), buf));
	if (value == rp_stat_mean && !narrow)
		fprintf(out, " %8.2f", w->seconds / (double)w->v[PLACED].count);
	fputc('\n', out);
}

static void table_head(FILE *out, bool narrow)
{
	fprintf(out, "%-11s %-6s %6s", "policy", "ties", "seed");
	for (int i = 0; i < COLUMNS; i++)
		if (!narrow || columns[i].narrow)
			fprintf(out, " %*s", columns[i].width, columns[i].name);
	fprintf(out, "%s\n", narrow ? "" : "  seconds");
}

void rp_report_time_table(FILE *out, const struct rp_sim_result *r, size_t count, bool quiet,
			  unsigned width)
{
	bool narrow = width > 0 && width < TABLE_WIDTH;

	table_head(out, narrow);
	for (size_t i = 0, first = 0; i < count; i++) {
		struct row one = {0}, all = {0};
		char seed[24];

		row_add(&one, &r[i]);
		snprintf(seed, sizeof(seed), "%" PRIu64, r[i].seed);
		row_print(out, &r[i], seed, &one, narrow, rp_stat_mean);
		if (i + 1 < count && r[i + 1].ties == r[i].ties &&
		    strcmp(r[i + 1].policy, r[i].policy) == 0)
			continue;
		for (size_t k = first; k <= i; k++)
			row_add(&all, &r[k]);
		if (i > first) {
			row_print(out, &r[i], "mean", &all, narrow, rp_stat_mean);
			row_print(out, &r[i], "sd", &all, narrow, rp_stat_spread);
		}
		first = i + 1;
	}
	if (quiet)
		return;
	fprintf(out,
		"\nplaced, refused, waiting: pods that arrived in the time measured, at its end.\n"
		"used, frag: GPU in use and FGD's measure, %% of the cluster, mean over that\n"
		"time. lost: GPU time of the pods refused, %% of what was asked for. GPU h wait:\n"
		"GPU demand times time waited. wait, p50 ...: time until a pod that was placed\n"
		"started.%s\n",
		narrow ? " A wider screen and --json show more columns." : "");
}

/* ---- JSON ---- */

static bool put(cJSON *o, const char *key, double v)
{
	return cJSON_AddNumberToObject(o, key, v) != NULL;
}

static bool put_points(cJSON *o, const struct rp_sim_result *r)
{
	cJSON *list = cJSON_AddArrayToObject(o, "over_time");

	if (list == NULL)
		return false;
	for (size_t i = 0; i < RP_SIM_POINTS; i++) {
		const struct rp_sim_point *p = &r->points[i];
		cJSON *x = cJSON_CreateObject();

		if (x == NULL || !cJSON_AddItemToArray(list, x)) {
			cJSON_Delete(x);
			return false;
		}
		if (!put(x, "at_s", (double)p->at_ms / 1000) ||
		    !put(x, "used_milli", (double)p->used_milli) ||
		    !put(x, "frag_milli", (double)p->frag_milli) ||
		    !put(x, "waiting_pods", (double)p->waiting_pods_centi / 100) ||
		    !put(x, "waiting_milli", (double)p->waiting_milli))
			return false;
	}
	return true;
}

static bool put_result(cJSON *list, const struct rp_sim_result *r)
{
	static const char *const kinds[RP_KINDS] = {"cpu_only", "shared", "one_gpu", "multi_gpu"};
	const struct {
		const char *key;
		double v;
	} numbers[] = {
		{"seed", (double)r->seed},
		{"gpu_milli", (double)r->total_milli},
		{"begin_s", (double)r->begin_ms / 1000},
		{"end_s", (double)r->end_ms / 1000},
		{"pods", (double)r->arrivals},
		{"placed_at_once", (double)r->at_once},
		{"placed_after_waiting", (double)r->waited},
		{"refused", (double)r->refused},
		{"impossible", (double)r->impossible},
		{"waiting_at_end", (double)r->unfinished},
		{"asked_gpu_h", (double)hours_centi(r->asked_gpu_s) / 100},
		{"refused_gpu_h", (double)hours_centi(r->refused_gpu_s) / 100},
		{"waited_gpu_h", (double)hours_centi(r->waited_gpu_s) / 100},
		{"wait_mean_s", (double)r->wait_mean_ms / 1000},
		{"wait_p50_s", (double)r->wait_p50_ms / 1000},
		{"wait_p95_s", (double)r->wait_p95_ms / 1000},
		{"wait_p99_s", (double)r->wait_p99_ms / 1000},
		{"wait_max_s", (double)r->wait_max_ms / 1000},
		{"used_pct", (double)r->used_centi / 100},
		{"frag_pct", (double)r->frag_centi / 100},
		{"wall_s", (double)(int64_t)(r->wall_s * 1e6 + 0.5) / 1e6},
		{"cpu_s", (double)(int64_t)(r->cpu_s * 1e6 + 0.5) / 1e6},
	};
	cJSON *o = cJSON_CreateObject(), *by_kind;
	char crc[16];

	if (o == NULL || !cJSON_AddItemToArray(list, o)) {
		cJSON_Delete(o);
		return false;
	}
	snprintf(crc, sizeof(crc), "%08" PRIx32, r->placements_crc32);
	if (cJSON_AddStringToObject(o, "policy", r->policy) == NULL ||
	    cJSON_AddStringToObject(o, "ties", rp_ties_name(r->ties)) == NULL ||
	    cJSON_AddStringToObject(o, "placements_crc32", crc) == NULL)
		return false;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (!put(o, numbers[i].key, numbers[i].v))
			return false;
	by_kind = cJSON_AddObjectToObject(o, "refused_by_kind");
	for (size_t k = 0; by_kind != NULL && k < RP_KINDS; k++)
		if (!put(by_kind, kinds[k], (double)r->refused_by_kind[k]))
			return false;
	return by_kind != NULL && rp_report_end(o, &r->end) && put_points(o, r);
}

char *rp_report_time_json(const struct rp_sim_result *r, size_t count)
{
	cJSON *list = cJSON_CreateArray();
	char *text = NULL;
	bool ok = list != NULL;

	for (size_t i = 0; ok && i < count; i++)
		ok = put_result(list, &r[i]);
	if (ok)
		text = cJSON_Print(list);
	cJSON_Delete(list);
	return text;
}

/* ---- CSV ---- */

void rp_report_time_csv(struct buf *b, const struct rp_sim_result *r, size_t count)
{
	buf_puts(b, "policy,ties,seed,at_s,used_pct,frag_pct,waiting_pods,waiting_gpu_milli\n");
	for (size_t i = 0; i < count; i++)
		for (size_t k = 0; k < RP_SIM_POINTS; k++) {
			const struct rp_sim_point *p = &r[i].points[k];
			char used[RP_TEXT_CAP], frag[RP_TEXT_CAP], pods[RP_TEXT_CAP];

			buf_printf(b, "%s,%s,%" PRIu64 ",%" PRId64 ",%s,%s,%s,%" PRId64 "\n",
				   r[i].policy, rp_ties_name(r[i].ties), r[i].seed, p->at_ms / 1000,
				   rp_text_centi(part_centi(p->used_milli, r[i].total_milli), used),
				   rp_text_centi(part_centi(p->frag_milli, r[i].total_milli), frag),
				   rp_text_centi(p->waiting_pods_centi, pods), p->waiting_milli);
		}
}
