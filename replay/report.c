#include "replay/report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "replay/stat.h"

static const int table_columns[] = {80, 90, 95, 100, 110, 120, 130};
#define TABLE_COLUMNS (sizeof(table_columns) / sizeof(table_columns[0]))
#define CURVE_LAST 130
#define TABLE_WIDTH 115

const char *rp_ties_name(enum po_ties ties)
{
	return ties == PO_TIES_RANDOM ? "random" : "rank";
}

/* ---- table ---- */

/* On a narrow screen only the columns at 95, 100 and 130 % are shown, and no times. */
static bool shown(size_t column, bool narrow)
{
	int at = table_columns[column];

	return !narrow || at == 95 || at == 100 || at == 130;
}

struct row {
	struct rp_stat alloc[TABLE_COLUMNS], frag_100, frag_end, placed, failed;
	size_t runs;
	double seconds;
};

static void row_add(struct row *w, const struct rp_result *r)
{
	for (size_t i = 0; i < TABLE_COLUMNS; i++)
		rp_stat_add(&w->alloc[i], rp_curve_at(&r->curve, table_columns[i]).alloc);
	rp_stat_add(&w->frag_100, rp_curve_at(&r->curve, 100).frag);
	rp_stat_add(&w->frag_end, rp_curve_at(&r->curve, r->curve.last).frag);
	w->runs++;
	rp_stat_add(&w->placed, (int64_t)r->placed);
	rp_stat_add(&w->failed, (int64_t)rp_result_failed(r));
	w->seconds += r->wall_s;
}

static void row_print(FILE *out, const struct rp_result *r, const char *seed, const struct row *w,
		      bool narrow, int64_t (*value)(const struct rp_stat *))
{
	char buf[32], placed[32], failed[32];

	fprintf(out, "%-11s %-6s %6s %8s %7s", r->policy, rp_ties_name(r->ties), seed,
		rp_text_count(value(&w->placed), placed), rp_text_count(value(&w->failed), failed));
	for (size_t i = 0; i < TABLE_COLUMNS; i++)
		if (shown(i, narrow))
			fprintf(out, " %6s", rp_text_centi(value(&w->alloc[i]), buf));
	fprintf(out, "  %6s", rp_text_centi(value(&w->frag_100), buf));
	fprintf(out, " %6s", rp_text_centi(value(&w->frag_end), buf));
	if (value == rp_stat_mean && !narrow)
		fprintf(out, " %8.3f", w->seconds / (double)w->runs);
	fputc('\n', out);
}

static void table_head(FILE *out, bool narrow)
{
	fprintf(out, "%-41s  %-*s fragm. %%\n", "", narrow ? 21 : 49,
		narrow ? "GPU in use, % at %" : "GPU in use, % of the cluster, at % arrived");
	fprintf(out, "%-11s %-6s %6s %8s %7s", "policy", "ties", "seed", "placed", "failed");
	for (size_t i = 0; i < TABLE_COLUMNS; i++)
		if (shown(i, narrow))
			fprintf(out, " %6d", table_columns[i]);
	fprintf(out, "  %6s %6s%s\n", "100", "end", narrow ? "" : "  seconds");
}

void rp_report_table(FILE *out, const struct rp_result *results, size_t count, bool quiet,
		     unsigned width)
{
	bool narrow = width > 0 && width < TABLE_WIDTH, spreads = false;

	table_head(out, narrow);
	for (size_t i = 0, first = 0; i < count; i++) {
		const struct rp_result *r = &results[i];
		struct row one = {0}, all = {0};
		char seed[24];

		row_add(&one, r);
		snprintf(seed, sizeof(seed), "%" PRIu64, r->seed);
		row_print(out, r, seed, &one, narrow, rp_stat_mean);
		if (i + 1 < count && results[i + 1].ties == r->ties &&
		    strcmp(results[i + 1].policy, r->policy) == 0)
			continue;
		for (size_t k = first; k <= i; k++)
			row_add(&all, &results[k]);
		if (all.runs > 1) {
			row_print(out, r, "mean", &all, narrow, rp_stat_mean);
			row_print(out, r, "sd", &all, narrow, rp_stat_spread);
			spreads = true;
		}
		first = i + 1;
	}
	if (quiet)
		return;
	fprintf(out,
		"\nties: which of the nodes with the best score wins. rank: the smallest node\n"
		"rank, as in the extender; random: a coin, as when raw scores go to a stock\n"
		"scheduler (--ties rank,random prints both). Fragmentation is FGD's measure for\n"
		"the trace's typical pods, %% of the cluster.%s%s\n",
		spreads ? " sd: the standard deviation over\nthe seeds." : "",
		narrow ? " A wider screen, --csv and --json show more columns." : "");
}

/* ---- JSON ---- */

static bool put(cJSON *o, const char *key, double v)
{
	return cJSON_AddNumberToObject(o, key, v) != NULL;
}

static bool put_text(cJSON *o, const char *key, const char *v)
{
	return cJSON_AddStringToObject(o, key, v) != NULL;
}

static bool put_curves(cJSON *o, const struct rp_curve *c)
{
	cJSON *alloc = cJSON_AddObjectToObject(o, "alloc_pct");
	cJSON *frag = cJSON_AddObjectToObject(o, "frag_pct");
	cJSON *ratio = cJSON_AddObjectToObject(o, "frag_ratio_pct");
	int last = c->last > CURVE_LAST ? c->last : CURVE_LAST;

	if (alloc == NULL || frag == NULL || ratio == NULL)
		return false;
	for (int k = 0; k <= last; k++) {
		struct rp_point p = rp_curve_at(c, k);
		char key[16];

		if (p.alloc == RP_NO_VALUE)
			continue;
		snprintf(key, sizeof(key), "%d", k);
		if (!put(alloc, key, (double)p.alloc / 100) ||
		    !put(frag, key, (double)p.frag / 100) ||
		    !put(ratio, key, (double)p.ratio / 100))
			return false;
	}
	return true;
}

bool rp_report_end(cJSON *o, const struct rp_stranded *end)
{
	cJSON *why = cJSON_AddObjectToObject(o, "idle_milli_by_reason");
	cJSON *models = cJSON_AddArrayToObject(o, "models");

	if (why == NULL || models == NULL)
		return false;
	for (int w = 0; w < RP_WHYS; w++)
		if (!put(why, rp_why_key((enum rp_why)w), (double)end->why_milli[w]))
			return false;
	for (size_t i = 0; i < end->model_count; i++) {
		cJSON *x = cJSON_CreateObject();

		if (x == NULL || !cJSON_AddItemToArray(models, x)) {
			cJSON_Delete(x);
			return false;
		}
		if (cJSON_AddStringToObject(x, "model", end->models[i].name) == NULL ||
		    !put(x, "gpu_milli", (double)end->models[i].total_milli) ||
		    !put(x, "used_gpu_milli", (double)end->models[i].used_milli))
			return false;
	}
	return true;
}

static bool put_result(cJSON *list, const struct rp_result *r)
{
	static const char *const kinds[RP_KINDS] = {"cpu_only", "shared", "one_gpu", "multi_gpu"};
	cJSON *o = cJSON_CreateObject(), *by_kind;
	char crc[16];

	if (o == NULL || !cJSON_AddItemToArray(list, o)) {
		cJSON_Delete(o);
		return false;
	}
	snprintf(crc, sizeof(crc), "%08" PRIx32, r->placements_crc32);
	if (!put_text(o, "policy", r->policy) || !put_text(o, "ties", rp_ties_name(r->ties)) ||
	    !put(o, "seed", (double)r->seed) || !put(o, "pods", (double)r->arrivals) ||
	    !put(o, "placed", (double)r->placed) || !put(o, "failed", (double)rp_result_failed(r)))
		return false;
	by_kind = cJSON_AddObjectToObject(o, "failed_by_kind");
	if (by_kind == NULL)
		return false;
	for (size_t k = 0; k < RP_KINDS; k++)
		if (!put(by_kind, kinds[k], (double)r->failed[k]))
			return false;
	return put(o, "gpu_milli", (double)r->total_milli) &&
	       put(o, "used_gpu_milli", (double)r->used_milli) &&
	       put(o, "measure_num", (double)r->measure_num) &&
	       put_text(o, "placements_crc32", crc) && put_curves(o, &r->curve) &&
	       rp_report_end(o, &r->end) &&
	       put(o, "wall_s", (double)(int64_t)(r->wall_s * 1e6 + 0.5) / 1e6) &&
	       put(o, "cpu_s", (double)(int64_t)(r->cpu_s * 1e6 + 0.5) / 1e6);
}

char *rp_report_json(const struct rp_result *results, size_t count)
{
	cJSON *list = cJSON_CreateArray();
	char *text = NULL;
	bool ok = list != NULL;

	for (size_t i = 0; ok && i < count; i++)
		ok = put_result(list, &results[i]);
	if (ok)
		text = cJSON_Print(list);
	cJSON_Delete(list);
	return text;
}

/* ---- CSV ---- */

void rp_report_csv(struct buf *b, const struct rp_result *results, size_t count)
{
	buf_puts(b, "policy,ties,seed,arrived_pct,alloc_pct,frag_pct,frag_ratio_pct\n");
	for (size_t i = 0; i < count; i++) {
		const struct rp_result *r = &results[i];
		int last = r->curve.last > CURVE_LAST ? r->curve.last : CURVE_LAST;

		for (int k = 0; k <= last; k++) {
			struct rp_point p = rp_curve_at(&r->curve, k);
			char alloc[32], frag[32], ratio[32];

			if (p.alloc == RP_NO_VALUE)
				continue;
			buf_printf(b, "%s,%s,%" PRIu64 ",%d,%s,%s,%s\n", r->policy,
				   rp_ties_name(r->ties), r->seed, k, rp_text_centi(p.alloc, alloc),
				   rp_text_centi(p.frag, frag), rp_text_centi(p.ratio, ratio));
		}
	}
}
