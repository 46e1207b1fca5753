/* Maps of columns, tables read by them, node types and usage exports. The first byte chooses. What is
 * accepted must be consistent. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "replay/map.h"
#include "replay/node_type.h"
#include "replay/sizing.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
	if (!ok)
		abort();
}

static void check_trace(const struct rp_trace *t)
{
	int64_t count = 0;

	check(strpool_count(t->pod_names) == t->pod_count);
	for (size_t i = 0; i < t->shape_count; i++) {
		const struct rp_shape *s = &t->shapes[i];

		count += s->count;
		check(s->milli >= 0 && s->milli <= RP_MAP_POD_GPUS * RP_GPU_UNITS);
		check((s->kind == RP_CPU_ONLY) == (s->milli == 0));
		check(s->req.cpu_milli >= 0 && s->req.mem_mib >= 0);
	}
	check(count == (int64_t)t->pod_count);
	for (uint32_t i = 0; i < t->pod_count; i++) {
		struct rp_stay s = rp_trace_stay(t, i);

		check(s.at_ms == RP_TIME_UNKNOWN || s.at_ms >= 0);
		check(s.stay_ms == RP_TIME_UNKNOWN || s.stay_ms >= 0);
	}
}

static void read_table(unsigned which, const char *text, size_t len, struct err *err)
{
	const char *map_text, *name = rp_map_builtin(which, &map_text);
	struct rp_trace t;
	struct rp_map m;
	int rc;

	if (name == NULL)
		return;
	check(rp_map_parse(name, map_text, strlen(map_text), &m, err) == 0);
	rp_trace_init(&t);
	check(rp_trace_open(&t, err) == 0);
	rc = strstr(name, "nodes") != NULL ? rp_map_nodes(&m, &t, "f", text, len, err)
					   : rp_map_pods(&m, &t, "f", text, len, err);
	check((rc < 0) == (err->msg[0] != '\0'));
	check_trace(&t);
	rp_trace_fini(&t);
}

static void read_usage(const char *text, size_t len, struct err *err)
{
	struct rp_sizing s = {0};

	rp_sizing_read(&s, text, len, err);
	for (size_t i = 0; i < s.count; i++) {
		struct rp_size z = rp_sizing_of(&s.rows[i], 100000000, 10);

		check(z.advice == RP_TOO_FEW || z.advice == RP_NOT_MEASURED ||
		      z.advised_mib >= s.rows[i].peak_mib);
	}
	rp_sizing_fini(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rp_node_type types[RP_NODE_TYPES_MAX];
	struct err err = ERR_INIT;
	struct rp_map m;
	size_t n = 0;
	char *text;

	if (size == 0)
		return 0;
	text = malloc(size); /* exact size: a read past the end is seen */
	if (text == NULL)
		abort();
	memcpy(text, data + 1, size - 1);
	switch (data[0] % 10) {
	case 0:
		rp_map_parse("f", text, size - 1, &m, &err);
		break;
	case 1:
		rp_node_types_json(text, size - 1, types, &n, &err);
		check(n <= RP_NODE_TYPES_MAX);
		break;
	case 2:
		read_usage(text, size - 1, &err);
		break;
	case 3: {
		char *line = malloc(size);

		if (line == NULL)
			abort();
		memcpy(line, text, size - 1);
		line[size - 1] = '\0';
		if (rp_node_type_parse(line, &types[0], &err) == 0)
			check(types[0].gpus <= ST_GPUS_MAX && types[0].cost_nano > 0);
		free(line);
		break;
	}
	default:
		read_table(data[0] % 10 - 4U, text, size - 1, &err);
		break;
	}
	free(text);
	return 0;
}
