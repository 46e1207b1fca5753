/* Rows of a table by a map. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/arith.h"
#include "base/quantity.h"
#include "replay/csv.h"
#include "replay/map.h"

#define CPU_MILLI_MAX 1000000000
#define MEM_MIB_MAX INT64_C(1000000000000)
#define TIME_MS_MAX INT64_C(10000000000000)

struct reader {
	const struct rp_map *m;
	struct rp_trace *t;
	struct rp_csv csv;
	struct rp_column cols[RP_MAP_FIELDS];
	size_t row;
};

static int out_of_memory(struct err *err)
{
	return err_set(err, ERR_NOMEM, "out of memory");
}

/* Days from 1970-01-01. */
static int64_t days(int64_t y, int64_t m, int64_t d)
{
	int64_t era, yoe, doy;

	y -= m <= 2;
	era = y / 400;
	yoe = y - era * 400;
	doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
	return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

/* "2017-10-03 12:00:01", also with T, a fraction of a second (dropped) and Z. */
static bool date_ms(struct rp_field f, int64_t *ret)
{
	static const char form[] = "dddd-dd-dd dd:dd:dd";
	int64_t n[6] = {0};
	size_t part = 0, i = 0;

	if (f.len < sizeof(form) - 1)
		return false;
	for (; i < sizeof(form) - 1; i++) {
		char c = f.s[i];

		if (form[i] == 'd') {
			if (c < '0' || c > '9')
				return false;
			n[part] = n[part] * 10 + (c - '0');
			continue;
		}
		if (c != form[i] && !(form[i] == ' ' && c == 'T'))
			return false;
		part++;
	}
	if (i < f.len && f.s[i] == '.')
		for (i++; i < f.len && f.s[i] >= '0' && f.s[i] <= '9'; i++)
			;
	if (i < f.len && f.s[i] == 'Z')
		i++;
	if (i != f.len || n[0] < 1970 || n[1] < 1 || n[1] > 12 || n[2] < 1 || n[2] > 31 ||
	    n[3] > 23 || n[4] > 59 || n[5] > 60)
		return false;
	*ret = (((days(n[0], n[1], n[2]) * 24 + n[3]) * 60 + n[4]) * 60 + n[5]) * 1000;
	return true;
}

/* The column's value in the field's base unit with nine decimals; *ret_known false: empty. */
static int value(const struct reader *r, enum rp_map_field field, bool *ret_known, __int128 *ret,
		 struct err *err)
{
	const struct rp_column *col = &r->cols[field];
	struct rp_field f = rp_csv_field(&r->csv, col);
	char text[40];
	int64_t v;

	*ret_known = false;
	*ret = 0;
	if (r->m->columns[field][0] == '\0' || f.len == 0)
		return 0;
	if (r->m->date[field]) {
		if (!date_ms(f, &v))
			return rp_csv_refuse(&r->csv, col, ERR_INVALID,
					     "is not of the form 2017-10-03 12:00:01", err);
		*ret = (__int128)v * 1000000000;
		*ret_known = true;
		return 0;
	}
	if (f.len >= sizeof(text))
		return rp_csv_refuse(&r->csv, col, ERR_INVALID, "is too long for a number", err);
	memcpy(text, f.s, f.len);
	text[f.len] = '\0';
	if (strlen(text) != f.len || decimal_parse_nano(text, &v, NULL) < 0)
		return rp_csv_refuse(&r->csv, col, ERR_INVALID, "is not a number", err);
	*ret = (__int128)v * r->m->units_nano[field] / 1000000000;
	*ret_known = true;
	return 0;
}

/* Rounded up to whole base units, within [0, max]. */
static int whole(const struct reader *r, enum rp_map_field field, int64_t max, int64_t none,
		 int64_t *ret, struct err *err)
{
	bool known;
	__int128 v;
	int rc = value(r, field, &known, &v, err);

	if (rc < 0)
		return rc;
	*ret = none;
	if (!known)
		return 0;
	v = (v + 999999999) / 1000000000;
	if (v > max)
		return rp_csv_refuse(&r->csv, &r->cols[field], ERR_RANGE, "is too large", err);
	*ret = (int64_t)v;
	return 0;
}

static int text_of(const struct reader *r, enum rp_map_field field, size_t cap,
		   struct rp_field *ret, struct err *err)
{
	const struct rp_column *col = &r->cols[field];

	*ret = (struct rp_field){.s = ""};
	if (r->m->columns[field][0] == '\0')
		return 0;
	*ret = rp_csv_field(&r->csv, col);
	if (ret->len >= cap)
		return rp_csv_refuse(&r->csv, col, ERR_INVALID, "is too long", err);
	for (size_t i = 0; i < ret->len; i++)
		if ((unsigned char)ret->s[i] <= ' ' || ret->s[i] == 0x7f)
			return rp_csv_refuse(&r->csv, col, ERR_INVALID,
					     "has a blank or unprintable character", err);
	return 0;
}

static int read_times(const struct reader *r, struct rp_stay *ret, struct err *err)
{
	int64_t start, end, duration;
	int rc;

	if ((rc = whole(r, RP_MAP_ARRIVAL, TIME_MS_MAX, RP_TIME_UNKNOWN, &ret->at_ms, err)) < 0 ||
	    (rc = whole(r, RP_MAP_START, TIME_MS_MAX, RP_TIME_UNKNOWN, &start, err)) < 0 ||
	    (rc = whole(r, RP_MAP_END, TIME_MS_MAX, RP_TIME_UNKNOWN, &end, err)) < 0 ||
	    (rc = whole(r, RP_MAP_DURATION, TIME_MS_MAX, RP_TIME_UNKNOWN, &duration, err)) < 0)
		return rc;
	ret->stay_ms = duration;
	if (duration != RP_TIME_UNKNOWN || start == RP_TIME_UNKNOWN || end == RP_TIME_UNKNOWN)
		return 0;
	if (end < start)
		return rp_csv_refuse(&r->csv, &r->cols[RP_MAP_END], ERR_RANGE,
				     "is before the start", err);
	ret->stay_ms = end - start;
	return 0;
}

/* milli: of GPUs, of one pod. */
static int add_pods(struct reader *r, struct st_request *req, int64_t milli, int64_t copies,
		    struct rp_field name, struct rp_stay stay, struct err *err)
{
	struct st_item *it = &req->items[0];
	char full[320];
	uint32_t shape;

	memset(it, 0, sizeof(*it));
	req->item_count = milli > 0;
	if (milli > 0) {
		memcpy(it->container, RP_CONTAINER, sizeof(RP_CONTAINER));
		it->count = (uint8_t)(milli < RP_GPU_UNITS ? 1 : milli / RP_GPU_UNITS);
		it->kind = milli < RP_GPU_UNITS ? ST_KIND_SHARE : ST_KIND_WHOLE;
		it->mode = milli < RP_GPU_UNITS ? ST_MODE_TIME_SLICING : ST_MODE_EXCLUSIVE;
		if (milli < RP_GPU_UNITS && r->t->fractions)
			it->request_nano = (int32_t)milli * (ST_NANO / RP_GPU_UNITS);
		else if (milli < RP_GPU_UNITS)
			it->request_mib = (int32_t)milli;
	}
	shape = rp_trace_shape(r->t, req);
	if (shape == UINT32_MAX)
		return out_of_memory(err);
	for (int64_t i = 0; i < copies; i++) {
		/* The row makes it unique: jobs have several tasks, and names come again. */
		int len = snprintf(full, sizeof(full), "%.*s-r%zu-%zu", (int)name.len, name.s,
				   r->row, r->t->pod_count);
		int rc = rp_trace_add_pod(r->t, full, (size_t)len, shape, err);

		if (rc == 0 && (stay.at_ms != RP_TIME_UNKNOWN || stay.stay_ms != RP_TIME_UNKNOWN))
			rc = rp_trace_set_stay(r->t, stay, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* A pod of too many GPUs as several; all have the CPU and memory of their part. */
static int split_pods(struct reader *r, struct st_request *req, int64_t milli, int64_t copies,
		      struct rp_field name, struct rp_stay stay, struct err *err)
{
	int64_t part = (int64_t)RP_MAP_POD_GPUS * RP_GPU_UNITS, parts;
	struct st_request one;
	int rc;

	if (milli <= part)
		return add_pods(r, req, milli, copies, name, stay, err);
	parts = (milli + part - 1) / part;
	if (copies * parts > RP_MAP_COPIES_MAX)
		return rp_csv_refuse(&r->csv, &r->cols[RP_MAP_GPUS], ERR_RANGE, "is too large",
				     err);
	memcpy(&one, req, sizeof(one));
	one.cpu_milli = (req->cpu_milli + parts - 1) / parts;
	one.mem_mib = (req->mem_mib + parts - 1) / parts;
	rc = add_pods(r, &one, part, copies * (milli / part), name, stay, err);
	if (rc == 0 && milli % part > 0)
		rc = add_pods(r, &one, milli % part, copies, name, stay, err);
	return rc;
}

static int read_pod(struct reader *r, struct err *err)
{
	int64_t copies, nodes, nano_milli;
	struct rp_field name, model;
	struct st_request req;
	struct rp_stay stay;
	bool known;
	__int128 gpus;
	int rc;

	memset(&req, 0, sizeof(req));
	if ((rc = text_of(r, RP_MAP_NAME, 200, &name, err)) < 0 ||
	    (rc = text_of(r, RP_MAP_MODEL, ST_PRODUCT_CAP, &model, err)) < 0 ||
	    (rc = whole(r, RP_MAP_COPIES, RP_MAP_COPIES_MAX, 1, &copies, err)) < 0 ||
	    (rc = whole(r, RP_MAP_NODES, RP_MAP_COPIES_MAX, 1, &nodes, err)) < 0 ||
	    (rc = whole(r, RP_MAP_CPU, CPU_MILLI_MAX, 0, &req.cpu_milli, err)) < 0 ||
	    (rc = whole(r, RP_MAP_MEMORY, MEM_MIB_MAX, 0, &req.mem_mib, err)) < 0 ||
	    (rc = value(r, RP_MAP_GPUS, &known, &gpus, err)) < 0 ||
	    (rc = read_times(r, &stay, err)) < 0)
		return rc;
	if (gpus > (__int128)RP_MAP_COPIES_MAX * 1000000000)
		return rp_csv_refuse(&r->csv, &r->cols[RP_MAP_GPUS], ERR_RANGE, "is too large",
				     err);
	nodes = arith_max(nodes, 1);
	req.cpu_milli = (req.cpu_milli + nodes - 1) / nodes;
	req.mem_mib = (req.mem_mib + nodes - 1) / nodes;
	/* Shares in milli, rounded up; from one GPU on whole ones. */
	nano_milli = (int64_t)((gpus / nodes + 999999) / 1000000);
	if (nano_milli > RP_GPU_UNITS)
		nano_milli = (nano_milli + RP_GPU_UNITS - 1) / RP_GPU_UNITS * RP_GPU_UNITS;
	memcpy(req.product, model.s, model.len);
	return split_pods(r, &req, nano_milli, copies * nodes, name, stay, err);
}

static int read_node(struct reader *r, struct err *err)
{
	struct rp_node n = {.model = STRPOOL_NONE};
	struct rp_field name, model;
	char numbered[32];
	int64_t gpus;
	int rc;

	/* A memory that is not told is not a bound. */
	if ((rc = text_of(r, RP_MAP_NAME, 254, &name, err)) < 0 ||
	    (rc = text_of(r, RP_MAP_MODEL, ST_PRODUCT_CAP, &model, err)) < 0 ||
	    (rc = whole(r, RP_MAP_CPU, CPU_MILLI_MAX, 0, &n.cpu_milli, err)) < 0 ||
	    (rc = whole(r, RP_MAP_MEMORY, MEM_MIB_MAX, MEM_MIB_MAX, &n.mem_mib, err)) < 0 ||
	    (rc = whole(r, RP_MAP_GPUS, ST_GPUS_MAX, 0, &gpus, err)) < 0)
		return rc;
	if (memchr(model.s, '|', model.len) != NULL)
		return rp_csv_refuse(&r->csv, &r->cols[RP_MAP_MODEL], ERR_INVALID,
				     "is not one model: it has a '|'", err);
	n.gpu_count = (uint8_t)gpus;
	if (model.len > 0) {
		n.model = strpool_intern(r->t->models, model.s, model.len);
		if (n.model == STRPOOL_NONE)
			return out_of_memory(err);
	}
	if (name.len == 0) {
		name.len = (size_t)snprintf(numbered, sizeof(numbered), "node-%zu", r->row);
		name.s = numbered;
	}
	rc = rp_trace_add_node(r->t, name.s, name.len, &n, err);
	if (rc == ERR_EXISTS)
		return rp_csv_refuse(&r->csv, &r->cols[RP_MAP_NAME], rc, "occurs twice", err);
	return rc;
}

static int read_rows(struct reader *r, int (*read)(struct reader *, struct err *), struct err *err)
{
	struct rp_column wanted[RP_MAP_FIELDS];
	size_t count = 0, fields;
	int rc;

	/* One column may serve several fields: it is looked for once. */
	for (int f = 0; f < RP_MAP_FIELDS; f++) {
		size_t k = 0;

		r->cols[f] = (struct rp_column){r->m->columns[f], false, -1};
		if (r->m->columns[f][0] == '\0')
			continue;
		while (k < count && strcmp(wanted[k].name, r->m->columns[f]) != 0)
			k++;
		if (k == count)
			wanted[count++] = (struct rp_column){r->m->columns[f], true, -1};
	}
	rc = rp_csv_header(&r->csv, wanted, count, err);
	for (int f = 0; f < RP_MAP_FIELDS; f++)
		for (size_t k = 0; k < count; k++)
			if (strcmp(wanted[k].name, r->m->columns[f]) == 0)
				r->cols[f].index = wanted[k].index;
	fields = r->csv.field_count;
	while (rc == 0 && (rc = rp_csv_row(&r->csv, fields, err)) == 1) {
		rc = read(r, err);
		r->row++;
	}
	return rc;
}

/* Dates and epochs are long: the first arrival is time 0. */
static void shift_times(struct rp_trace *t)
{
	int64_t first = INT64_MAX;

	for (uint32_t i = 0; i < t->pod_count; i++) {
		int64_t at = rp_trace_stay(t, i).at_ms;

		if (at != RP_TIME_UNKNOWN)
			first = arith_min(first, at);
	}
	for (uint32_t i = 0; i < t->pod_count && i < t->stay_cap; i++)
		if (t->stays[i].at_ms != RP_TIME_UNKNOWN)
			t->stays[i].at_ms -= first;
}

int rp_map_pods(const struct rp_map *m, struct rp_trace *t, const char *path, const char *text,
		size_t len, struct err *err)
{
	struct reader r = {.m = m, .t = t};
	int rc;

	rp_csv_init(&r.csv, path, text, len);
	rc = read_rows(&r, read_pod, err);
	if (rc == 0 && t->pod_count == 0)
		return err_set(err, ERR_INVALID, "%s: no pods", path);
	shift_times(t);
	return rc;
}

int rp_map_nodes(const struct rp_map *m, struct rp_trace *t, const char *path, const char *text,
		 size_t len, struct err *err)
{
	struct reader r = {.m = m, .t = t};
	int rc;

	rp_csv_init(&r.csv, path, text, len);
	rc = read_rows(&r, read_node, err);
	if (rc == 0 && t->node_count == 0)
		return err_set(err, ERR_INVALID, "%s: no nodes", path);
	return rc;
}
