#include "replay/map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "replay/csv.h"

#define MAP_FILE_MAX ((size_t)1 << 16)

static const char *const field_names[RP_MAP_FIELDS] = {
	"name",  "copies",  "nodes", "cpu", "memory",   "gpus",
	"model", "arrival", "start", "end", "duration",
};

enum dimension { NONE, NUMBER, CPU, MEMORY, GPU, TIME };
static const enum dimension dimensions[RP_MAP_FIELDS] = {
	NONE, NUMBER, NUMBER, CPU, MEMORY, GPU, NONE, TIME, TIME, TIME, TIME,
};

static const struct {
	enum dimension of;
	const char *name;
	int64_t nano;
} units[] = {
	/* The first of each is what holds where none is given. */
	{NUMBER, "", 1000000000},
	{CPU, "cores", INT64_C(1000000000000)},
	{CPU, "milli", 1000000000},
	{CPU, "percent", INT64_C(10000000000)},
	{MEMORY, "MiB", 1000000000},
	{MEMORY, "GiB", INT64_C(1024000000000)},
	{MEMORY, "GB", INT64_C(953674316406)},
	{MEMORY, "bytes", 954},
	{GPU, "GPUs", 1000000000},
	{GPU, "percent", 10000000},
	{GPU, "milli", 1000000},
	{TIME, "s", INT64_C(1000000000000)},
	{TIME, "ms", 1000000000},
	{TIME, "minutes", INT64_C(60000000000000)},
	{TIME, "date", INT64_C(1000000000000)},
};

static const struct {
	const char *name, *text;
} builtin[] = {
	{"alibaba-2020", "name = job_name\ncopies = inst_num\ncpu = plan_cpu percent\n"
			 "memory = plan_mem GB\ngpus = plan_gpu percent\n"
			 "arrival = start_time\nstart = start_time\nend = end_time\n"},
	{"alibaba-2025",
	 "name = instance_sn\ncpu = cpu_request cores\nmemory = memory_request GiB\n"
	 "gpus = gpu_request\narrival = creation_time\nstart = scheduled_time\n"
	 "end = deletion_time\n"},
	{"alibaba-2026", "name = job_name\ncopies = worker_num\ncpu = cpu_request cores\n"
			 "gpus = gpu_request\nmodel = gpu_model\narrival = submit_time\n"
			 "duration = duration\n"},
	{"alibaba-2026-nodes",
	 "name = node_name\ncpu = cpu_num cores\ngpus = gpu_capacity_num\nmodel = gpu_model\n"},
	{"helios", "name = job_id\nnodes = node_num\ncpu = cpu_num cores\ngpus = gpu_num\n"
		   "arrival = submit_time date\nduration = duration\n"},
	{"philly", "name = jobid\ngpus = num_gpus\narrival = submitted_time date\n"
		   "start = start_time date\nend = end_time date\n"},
};

const char *rp_map_builtin(size_t i, const char **ret_text)
{
	if (i >= sizeof(builtin) / sizeof(builtin[0]))
		return NULL;
	*ret_text = builtin[i].text;
	return builtin[i].name;
}

static struct rp_field trim(const char *s, const char *end)
{
	while (s < end && (*s == ' ' || *s == '\t'))
		s++;
	while (end > s && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r'))
		end--;
	return (struct rp_field){.s = s, .len = (size_t)(end - s)};
}

static bool is(struct rp_field f, const char *s)
{
	return strlen(s) == f.len && memcmp(s, f.s, f.len) == 0;
}

static int set_unit(struct rp_map *m, int field, struct rp_field unit)
{
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (units[i].of == dimensions[field] &&
		    (unit.len == 0 || is(unit, units[i].name))) {
			m->units_nano[field] = units[i].nano;
			m->date[field] = strcmp(units[i].name, "date") == 0;
			return 0;
		}
	return unit.len == 0 && dimensions[field] == NONE ? 0 : ERR_INVALID;
}

static int line_of(struct rp_map *m, const char *s, const char *end, const char **what,
		   char shown[RP_SHOWN_CAP])
{
	const char *hash = memchr(s, '#', (size_t)(end - s)), *eq, *blank;
	struct rp_field line = trim(s, hash != NULL ? hash : end), name, column, unit = {.s = ""};
	int field = 0;

	if (line.len == 0)
		return 0;
	eq = memchr(line.s, '=', line.len);
	*what = "not of the form field = column [unit]";
	rp_csv_show(line, shown);
	if (eq == NULL)
		return ERR_INVALID;
	name = trim(line.s, eq);
	column = trim(eq + 1, line.s + line.len);
	blank = memchr(column.s, ' ', column.len);
	if (blank != NULL) {
		unit = trim(blank, column.s + column.len);
		column = trim(column.s, blank);
	}
	while (field < RP_MAP_FIELDS && !is(name, field_names[field]))
		field++;
	rp_csv_show(name, shown);
	*what = "no such field";
	if (field == RP_MAP_FIELDS)
		return ERR_INVALID;
	*what = "given twice";
	if (m->columns[field][0] != '\0')
		return ERR_INVALID;
	rp_csv_show(column, shown);
	*what = "no column name of 1 to 63 characters";
	if (column.len == 0 || column.len >= RP_MAP_COLUMN_CAP ||
	    memchr(column.s, '\0', column.len) != NULL)
		return ERR_INVALID;
	memcpy(m->columns[field], column.s, column.len);
	rp_csv_show(unit, shown);
	*what = "no unit of that field";
	return set_unit(m, field, unit);
}

int rp_map_parse(const char *path, const char *text, size_t len, struct rp_map *ret,
		 struct err *err)
{
	const char *end = text + len;
	struct rp_map m = {0};
	unsigned line = 1;

	for (const char *s = text; s < end; line++) {
		const char *stop = memchr(s, '\n', (size_t)(end - s)), *what = "";
		char shown[RP_SHOWN_CAP] = "";

		if (stop == NULL)
			stop = end;
		if (line_of(&m, s, stop, &what, shown) < 0)
			return err_set(err, ERR_INVALID, "%s:%u: \"%s\": %s", path, line, shown,
				       what);
		s = stop < end ? stop + 1 : end;
	}
	if (m.columns[RP_MAP_GPUS][0] == '\0' && m.columns[RP_MAP_CPU][0] == '\0')
		return err_set(err, ERR_INVALID, "%s: neither gpus nor cpu has a column", path);
	if (m.columns[RP_MAP_COPIES][0] != '\0' && m.columns[RP_MAP_NODES][0] != '\0')
		return err_set(err, ERR_INVALID, "%s: one of copies and nodes", path);
	*ret = m;
	return 0;
}

int rp_map_find(const char *name, struct rp_map *ret, struct err *err)
{
	char *text = NULL;
	size_t len;
	int rc;

	for (size_t i = 0; i < sizeof(builtin) / sizeof(builtin[0]); i++)
		if (strcmp(builtin[i].name, name) == 0)
			return rp_map_parse(name, builtin[i].text, strlen(builtin[i].text), ret,
					    err);
	rc = file_read(name, MAP_FILE_MAX, &text, &len, err);
	if (rc == 0)
		rc = rp_map_parse(name, text, len, ret, err);
	free(text);
	return rc;
}
