#include "replay/openb.h"

#include <stdio.h>
#include <string.h>

#include "replay/csv.h"

#define CPU_MILLI_MAX 1000000000  /* a million cores */
#define MEM_MIB_MAX 1000000000000 /* an exbibyte, nearly */
#define SECONDS_MAX INT64_C(4000000000)

enum { NODE_SN, NODE_CPU, NODE_MEM, NODE_GPU, NODE_MODEL, NODE_COLUMNS };
enum {
	POD_NAME,
	POD_CPU,
	POD_MEM,
	POD_NUM,
	POD_MILLI,
	POD_SPEC,
	POD_CREATED,
	POD_DELETED,
	POD_SCHEDULED,
	POD_COLUMNS
};

static int out_of_memory(struct err *err)
{
	return err_set(err, ERR_NOMEM, "out of memory");
}

static int check_product(const struct rp_csv *csv, const struct rp_column *col, struct err *err)
{
	struct rp_field f = rp_csv_field(csv, col);

	if (f.len >= ST_PRODUCT_CAP)
		return rp_csv_refuse(csv, col, ERR_INVALID, "is longer than 255 characters", err);
	for (size_t i = 0; i < f.len; i++)
		if ((unsigned char)f.s[i] < ' ' || f.s[i] == 0x7F)
			return rp_csv_refuse(csv, col, ERR_INVALID, "has an unprintable character",
					     err);
	return 0;
}

static int read_node(struct rp_trace *t, const struct rp_csv *csv, const struct rp_column *cols,
		     struct err *err)
{
	struct rp_node n = {.model = STRPOOL_NONE};
	struct rp_field name, model = rp_csv_field(csv, &cols[NODE_MODEL]);
	int64_t gpus;
	int rc;

	if ((rc = rp_csv_name(csv, &cols[NODE_SN], &name, err)) < 0 ||
	    (rc = rp_csv_integer(csv, &cols[NODE_CPU], 0, CPU_MILLI_MAX, &n.cpu_milli, err)) < 0 ||
	    (rc = rp_csv_integer(csv, &cols[NODE_MEM], 0, MEM_MIB_MAX, &n.mem_mib, err)) < 0 ||
	    (rc = rp_csv_integer(csv, &cols[NODE_GPU], 0, ST_GPUS_MAX, &gpus, err)) < 0 ||
	    (rc = check_product(csv, &cols[NODE_MODEL], err)) < 0)
		return rc;
	if (memchr(model.s, '|', model.len) != NULL)
		return rp_csv_refuse(csv, &cols[NODE_MODEL], ERR_INVALID,
				     "is not one model: it has a '|'", err);
	n.gpu_count = (uint8_t)gpus;
	if (model.len > 0) {
		n.model = strpool_intern(t->models, model.s, model.len);
		if (n.model == STRPOOL_NONE)
			return out_of_memory(err);
	}
	rc = rp_trace_add_node(t, name.s, name.len, &n, err);
	if (rc == ERR_EXISTS)
		return rp_csv_refuse(csv, &cols[NODE_SN], rc, "occurs twice", err);
	return rc;
}

int rp_openb_nodes(struct rp_trace *t, const char *path, const char *text, size_t len,
		   struct err *err)
{
	struct rp_column cols[NODE_COLUMNS] = {
		[NODE_SN] = {"sn", true, -1},          [NODE_CPU] = {"cpu_milli", true, -1},
		[NODE_MEM] = {"memory_mib", true, -1}, [NODE_GPU] = {"gpu", true, -1},
		[NODE_MODEL] = {"model", true, -1},
	};
	struct rp_csv csv;
	size_t fields;
	int rc;

	rp_csv_init(&csv, path, text, len);
	rc = rp_csv_header(&csv, cols, NODE_COLUMNS, err);
	fields = csv.field_count;
	while (rc == 0 && (rc = rp_csv_row(&csv, fields, err)) == 1)
		rc = read_node(t, &csv, cols, err);
	if (rc == 0 && t->node_count == 0)
		return err_set(err, ERR_INVALID, "%s: no nodes", path);
	return rc;
}

static void fill_item(const struct rp_trace *t, int64_t num, int64_t milli, struct st_item *it)
{
	memcpy(it->container, RP_CONTAINER, sizeof(RP_CONTAINER));
	it->count = (uint8_t)num;
	if (milli == RP_GPU_UNITS) {
		it->kind = ST_KIND_WHOLE;
		it->mode = ST_MODE_EXCLUSIVE;
		return;
	}
	it->kind = ST_KIND_SHARE;
	it->mode = ST_MODE_TIME_SLICING;
	if (t->fractions)
		it->request_nano = (int32_t)milli * (ST_NANO / RP_GPU_UNITS);
	else
		it->request_mib = (int32_t)milli;
}

/* Seconds, in milliseconds; an empty field is an unknown time. */
static int read_time(const struct rp_csv *csv, const struct rp_column *col, int64_t *ret,
		     struct err *err)
{
	int64_t s;
	int rc;

	*ret = RP_TIME_UNKNOWN;
	if (rp_csv_field(csv, col).len == 0)
		return 0;
	rc = rp_csv_integer(csv, col, 0, SECONDS_MAX, &s, err);
	if (rc == 0)
		*ret = s * 1000;
	return rc;
}

/* It arrives when it was created, and stays as long as it ran. */
static int read_stay(const struct rp_csv *csv, const struct rp_column *cols, struct rp_stay *ret,
		     struct err *err)
{
	int64_t deleted, scheduled;
	int rc;

	if ((rc = read_time(csv, &cols[POD_CREATED], &ret->at_ms, err)) < 0 ||
	    (rc = read_time(csv, &cols[POD_DELETED], &deleted, err)) < 0 ||
	    (rc = read_time(csv, &cols[POD_SCHEDULED], &scheduled, err)) < 0)
		return rc;
	ret->stay_ms = RP_TIME_UNKNOWN;
	if (deleted == RP_TIME_UNKNOWN || scheduled == RP_TIME_UNKNOWN)
		return 0;
	if (deleted < scheduled)
		return rp_csv_refuse(csv, &cols[POD_DELETED], ERR_RANGE, "is before scheduled_time",
				     err);
	ret->stay_ms = deleted - scheduled;
	return 0;
}

static int read_pod(struct rp_trace *t, const struct rp_csv *csv, const struct rp_column *cols,
		    struct err *err)
{
	struct rp_field name, spec = rp_csv_field(csv, &cols[POD_SPEC]);
	struct st_request req;
	struct rp_stay stay;
	int64_t num, milli;
	uint32_t shape;
	int rc;

	memset(&req, 0, sizeof(req));
	if ((rc = rp_csv_name(csv, &cols[POD_NAME], &name, err)) < 0 ||
	    (rc = rp_csv_integer(csv, &cols[POD_CPU], 0, CPU_MILLI_MAX, &req.cpu_milli, err)) < 0 ||
	    (rc = rp_csv_integer(csv, &cols[POD_MEM], 0, MEM_MIB_MAX, &req.mem_mib, err)) < 0 ||
	    (rc = rp_csv_integer(csv, &cols[POD_NUM], 0, ST_GPUS_MAX, &num, err)) < 0 ||
	    (rc = rp_csv_integer(csv, &cols[POD_MILLI], num > 0, num > 0 ? RP_GPU_UNITS : 0, &milli,
				 err)) < 0 ||
	    (rc = check_product(csv, &cols[POD_SPEC], err)) < 0 ||
	    (rc = read_stay(csv, cols, &stay, err)) < 0)
		return rc;
	if (spec.len > 0)
		memcpy(req.product, spec.s, spec.len);
	if (num > 0) {
		req.item_count = 1;
		fill_item(t, num, milli, &req.items[0]);
	}
	shape = rp_trace_shape(t, &req);
	if (shape == UINT32_MAX)
		return out_of_memory(err);
	rc = rp_trace_add_pod(t, name.s, name.len, shape, err);
	if (rc == ERR_EXISTS)
		return rp_csv_refuse(csv, &cols[POD_NAME], rc, "occurs twice", err);
	if (rc == 0 && stay.at_ms != RP_TIME_UNKNOWN)
		rc = rp_trace_set_stay(t, stay, err);
	return rc;
}

int rp_openb_pods(struct rp_trace *t, const char *path, const char *text, size_t len,
		  struct err *err)
{
	struct rp_column cols[POD_COLUMNS] = {
		[POD_NAME] = {"name", true, -1},
		[POD_CPU] = {"cpu_milli", true, -1},
		[POD_MEM] = {"memory_mib", true, -1},
		[POD_NUM] = {"num_gpu", true, -1},
		[POD_MILLI] = {"gpu_milli", true, -1},
		[POD_SPEC] = {"gpu_spec", false, -1},
		[POD_CREATED] = {"creation_time", false, -1},
		[POD_DELETED] = {"deletion_time", false, -1},
		[POD_SCHEDULED] = {"scheduled_time", false, -1},
	};
	struct rp_csv csv;
	size_t fields;
	int rc;

	rp_csv_init(&csv, path, text, len);
	rc = rp_csv_header(&csv, cols, POD_COLUMNS, err);
	fields = csv.field_count;
	while (rc == 0 && (rc = rp_csv_row(&csv, fields, err)) == 1)
		rc = read_pod(t, &csv, cols, err);
	if (rc == 0 && t->pod_count == 0)
		return err_set(err, ERR_INVALID, "%s: no pods", path);
	return rc;
}
