#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "replay/command.h"
#include "replay/sizing.h"

#define FILE_LIMIT ((size_t)64 << 20)

struct args {
	struct rp_option_list usage;
	int64_t margin_nano, min_samples;
	const char *csv_path;
	bool json, quiet;
};

/* Most freed first, then by name. */
static int by_gain(const void *a, const void *b)
{
	const struct rp_size *x = a, *y = b;
	int d;

	if (x->freed_mib != y->freed_mib)
		return x->freed_mib > y->freed_mib ? -1 : 1;
	if ((d = strcmp(x->u->ns, y->u->ns)) != 0 ||
	    (d = strcmp(x->u->workload, y->u->workload)) != 0 ||
	    (d = strcmp(x->u->kind, y->u->kind)) != 0)
		return d;
	return strcmp(x->u->container, y->u->container);
}

static const char *number(int64_t v, char buf[24])
{
	snprintf(buf, 24, "%" PRId64, v);
	return v < 0 ? "-" : buf;
}

struct totals {
	size_t rows[RP_ADVICES];
	int64_t asked, freed, more;
};

static struct totals sum(const struct rp_size *z, size_t count)
{
	struct totals t = {{0}, 0, 0, 0};

	for (size_t i = 0; i < count; i++) {
		t.rows[z[i].advice]++;
		t.asked += z[i].u->request_mib > 0 ? z[i].u->request_mib : 0;
		t.freed += z[i].freed_mib > 0 ? z[i].freed_mib : 0;
		t.more -= z[i].freed_mib < 0 ? z[i].freed_mib : 0;
	}
	return t;
}

/* "namespace/kind/workload" */
static int name_length(const struct rp_usage *u)
{
	return (int)(strlen(u->ns) + strlen(u->kind) + strlen(u->workload) + 2);
}

static void print_table(const struct args *a, const struct rp_size *z, size_t count)
{
	struct totals t = sum(z, count);
	int wide = (int)strlen("workload"), box = (int)strlen("container");

	for (size_t i = 0; i < count; i++) {
		int len = (int)strlen(z[i].u->container);

		wide = name_length(z[i].u) > wide ? name_length(z[i].u) : wide;
		box = len > box ? len : box;
	}
	printf("%-*s %-*s %9s %9s %9s %9s %5s %9s  %s\n", wide, "workload", box, "container",
	       "request", "peak", "advised", "freed", "SM %", "samples", "advice");
	for (size_t i = 0; i < count; i++) {
		const struct rp_usage *u = z[i].u;
		char b[4][24];

		printf("%s/%s/%s%*s %-*s %9s %9s %9" PRId64 " %9" PRId64 " %5s %9s  %s\n", u->ns,
		       u->kind, u->workload, wide - name_length(u), "", box, u->container,
		       number(u->request_mib, b[0]), number(u->peak_mib, b[1]), z[i].advised_mib,
		       z[i].freed_mib, number(u->sm_percent, b[2]), number(u->samples, b[3]),
		       rp_advice_name(z[i].advice));
	}
	if (a->quiet)
		return;
	printf("\n%zu ask for too much: one pod of each asks for %" PRId64
	       " MiB less. %zu used more than they ask for: %" PRId64
	       " MiB more.\n%zu may stay, %zu have too few samples, %zu were not measured. MiB of GPU "
	       "memory on one GPU, for each pod\nof a workload; never below the highest peak.\n",
	       t.rows[RP_LESS], t.freed, t.rows[RP_MORE], t.more, t.rows[RP_KEEP],
	       t.rows[RP_TOO_FEW], t.rows[RP_NOT_MEASURED]);
}

static bool put_number(cJSON *o, const char *key, int64_t v, bool known)
{
	return (known ? cJSON_AddNumberToObject(o, key, (double)v)
		      : cJSON_AddNullToObject(o, key)) != NULL;
}

static bool put_rows(cJSON *list, const struct rp_size *z, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct rp_usage *u = z[i].u;
		cJSON *o = cJSON_CreateObject();

		if (o == NULL || !cJSON_AddItemToArray(list, o)) {
			cJSON_Delete(o);
			return false;
		}
		if (!cJSON_AddStringToObject(o, "namespace", u->ns) ||
		    !cJSON_AddStringToObject(o, "kind", u->kind) ||
		    !cJSON_AddStringToObject(o, "workload", u->workload) ||
		    !cJSON_AddStringToObject(o, "container", u->container) ||
		    !cJSON_AddStringToObject(o, "advice", rp_advice_name(z[i].advice)) ||
		    !put_number(o, "request_mib", u->request_mib, u->request_mib >= 0) ||
		    !put_number(o, "peak_memory_mib", u->peak_mib, u->peak_mib >= 0) ||
		    !put_number(o, "peak_sm_percent", u->sm_percent, u->sm_percent >= 0) ||
		    !put_number(o, "samples", u->samples, true) ||
		    !put_number(o, "advised_mib", z[i].advised_mib, true) ||
		    !put_number(o, "freed_mib", z[i].freed_mib, true))
			return false;
	}
	return true;
}

static int print_json(const struct rp_size *z, size_t count, struct err *err)
{
	cJSON *list = cJSON_CreateArray();
	char *text = list != NULL && put_rows(list, z, count) ? cJSON_Print(list) : NULL;

	cJSON_Delete(list);
	if (text == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	puts(text);
	free(text);
	return 0;
}

/* A field of a CSV, quoted where it has to be. */
static void put_csv(struct buf *b, const char *s)
{
	bool plain = s[strcspn(s, ",\"\r\n")] == '\0';

	if (!plain)
		buf_putc(b, '"');
	for (; *s != '\0'; s++) {
		if (*s == '"')
			buf_putc(b, '"');
		buf_putc(b, *s);
	}
	if (!plain)
		buf_putc(b, '"');
}

static int write_csv(const char *path, const struct rp_size *z, size_t count, struct err *err)
{
	struct buf b = BUF_INIT;
	int rc;

	buf_puts(&b, "namespace,kind,workload,container,request_mib,peak_memory_mib,advised_mib,"
		     "freed_mib,peak_sm_percent,samples,advice\n");
	for (size_t i = 0; i < count; i++) {
		const struct rp_usage *u = z[i].u;
		const char *const names[] = {u->ns, u->kind, u->workload, u->container};
		char n[3][24];

		for (size_t k = 0; k < 4; k++) {
			put_csv(&b, names[k]);
			buf_putc(&b, ',');
		}
		buf_printf(&b, "%s,%s,%" PRId64 ",%" PRId64 ",%s,%" PRId64 ",%s\n",
			   number(u->request_mib, n[0]), number(u->peak_mib, n[1]),
			   z[i].advised_mib, z[i].freed_mib, number(u->sm_percent, n[2]),
			   u->samples, rp_advice_name(z[i].advice));
	}
	rc = rp_write_file(path, &b, err);
	buf_fini(&b);
	return rc;
}

static int read_all(const struct args *a, struct rp_sizing *s, struct err *err)
{
	for (size_t i = 0; i < a->usage.count; i++) {
		char *text = NULL;
		size_t len;
		int rc = file_read(a->usage.v[i], FILE_LIMIT, &text, &len, err);

		if (rc == 0) {
			rc = rp_sizing_read(s, text, len, err);
			if (rc < 0)
				err_prefix(err, rc, "%s", a->usage.v[i]);
		}
		free(text);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int sizing(const struct args *a, const struct rp_sizing *s)
{
	struct rp_size *z = calloc(s->count + 1, sizeof(*z));
	struct err err = ERR_INIT;
	int rc = 0, status;

	if (z == NULL) {
		err_set(&err, 0, "out of memory");
		return rp_command_failed(ERR_NOMEM, &err);
	}
	for (size_t i = 0; i < s->count; i++)
		z[i] = rp_sizing_of(&s->rows[i], a->margin_nano, a->min_samples);
	qsort(z, s->count, sizeof(*z), by_gain);
	if (a->json)
		rc = print_json(z, s->count, &err);
	else
		print_table(a, z, s->count);
	if (rc == 0 && a->csv_path != NULL)
		rc = write_csv(a->csv_path, z, s->count, &err);
	status = rp_command_end(rc, &err);
	free(z);
	return status;
}

int rp_cmd_sizing(const struct rp_command *self, int argc, char **argv)
{
	static struct args a;
	const struct rp_option options[] = {
		{"usage", "FILE", RP_OPT_LIST, &a.usage, 0, 0,
		 "what a node agent's /api/v1/usage answers; given once for each node"},
		{"margin", "R", RP_OPT_DECIMAL, &a.margin_nano, 0, INT64_C(10000000000),
		 "room above the highest peak, as a share of it; 0.1"},
		{"samples", "N", RP_OPT_INTEGER, &a.min_samples, 1, 1000000000,
		 "fewer samples are no reason to ask for less; 100"},
		{"csv", "FILE", RP_OPT_TEXT, &a.csv_path, 0, 0, "write the table as CSV"},
		{"json", NULL, RP_OPT_FLAG, &a.json, 0, 0, "print a list of objects, no table"},
		{"quiet", NULL, RP_OPT_FLAG, &a.quiet, 0, 0, "no explanations"},
	};
	struct rp_sizing s = {0};
	struct err err = ERR_INIT;
	int status, rc;

	a = (struct args){.margin_nano = 100000000, .min_samples = 100};
	if (!rp_command_options(self, options, sizeof(options) / sizeof(options[0]), argc, argv,
				&status))
		return status;
	if (a.usage.count == 0) {
		err_set(&err, 0, "--usage is missing");
		return rp_command_failed(ERR_INVALID, &err);
	}
	rc = read_all(&a, &s, &err);
	status = rc < 0 ? rp_command_failed(rc, &err) : sizing(&a, &s);
	rp_sizing_fini(&s);
	return status;
}
