/* Which GPUs the extender gave: read back from its map of the cluster. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <zlib.h>

#include "kube/object.h"
#include "replay/drive_internal.h"

#define MAP_PATH "/api/v1/cluster"

struct map {
	struct drive *d;
	struct strpool *uids; /* id = step */
	uint16_t *gpus;       /* of each step: a bit for each GPU index */
};

static int bad_map(struct err *err, const char *what)
{
	return err_set(err, ERR_IO, MAP_PATH ": %s", what);
}

static int take_gpu(struct map *m, const cJSON *gpu, unsigned index, struct err *err)
{
	const cJSON *pods = cJSON_GetObjectItemCaseSensitive(gpu, "pods"), *pod;

	if (!cJSON_IsArray(pods))
		return bad_map(err, "a GPU without pods");
	cJSON_ArrayForEach(pod, pods)
	{
		const cJSON *uid = cJSON_GetObjectItemCaseSensitive(pod, "uid");
		uint32_t step;

		if (!cJSON_IsString(uid))
			return bad_map(err, "a pod without uid");
		step = strpool_find(m->uids, uid->valuestring, strlen(uid->valuestring));
		if (step != STRPOOL_NONE)
			m->gpus[step] |= (uint16_t)(1U << index);
	}
	return 0;
}

static int take_map(struct map *m, const cJSON *root, struct err *err)
{
	const cJSON *nodes = cJSON_GetObjectItemCaseSensitive(root, "nodes"), *node, *gpu;

	if (!cJSON_IsArray(nodes))
		return bad_map(err, "no nodes");
	cJSON_ArrayForEach(node, nodes)
	{
		unsigned index = 0;

		cJSON_ArrayForEach(gpu, cJSON_GetObjectItemCaseSensitive(node, "gpus"))
		{
			int rc = index < ST_GPUS_MAX ? take_gpu(m, gpu, index, err)
						     : bad_map(err, "a node with too many GPUs");

			if (rc < 0)
				return rc;
			index++;
		}
	}
	return 0;
}

static int fetch(struct map *m, struct err *err)
{
	struct drive *d = m->d;
	struct rp_call *call = rp_http_call(d->http);
	cJSON *root = NULL;
	int rc;

	if (call == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	rc = rp_http_start(d->http, call, MAP_PATH, err);
	if (rc == 0)
		rc = rp_http_wait(d->http, call, err);
	if (rc == 0 && call->status != 200)
		rc = err_set(err, ERR_IO, MAP_PATH ": HTTP status %ld", call->status);
	if (rc == 0)
		rc = ku_json_parse(call->reply.data != NULL ? call->reply.data : "",
				   call->reply.len, &root, err);
	if (rc == 0)
		rc = take_map(m, root, err);
	cJSON_Delete(root);
	rp_http_give_back(d->http, call);
	return rc;
}

static void put_line(const struct map *m, size_t step, struct buf *b)
{
	const struct drive *d = m->d;
	const char *sep = "";

	buf_put_i64(b, (int64_t)step);
	buf_putc(b, ',');
	buf_puts(b, strpool_str(d->t->pod_names, d->o->pods[step]));
	buf_putc(b, ',');
	if (d->nodes[step] != ST_NONE)
		buf_puts(b, strpool_str(d->t->node_names, d->nodes[step]));
	buf_putc(b, ',');
	for (unsigned g = 0; g < ST_GPUS_MAX; g++)
		if (m->gpus[step] & 1U << g) {
			buf_puts(b, sep);
			buf_put_i64(b, g);
			sep = "-";
		}
	buf_putc(b, '\n');
}

int drive_decisions(struct drive *d, struct err *err)
{
	struct map m = {.d = d, .uids = strpool_new()};
	struct buf *b = &d->result.decisions;
	char uid[RP_UID_CAP];
	int rc = 0;

	m.gpus = calloc(d->steps + 1, sizeof(*m.gpus));
	if (m.uids == NULL || m.gpus == NULL)
		rc = err_set(err, ERR_NOMEM, "out of memory");
	for (size_t i = 0; rc == 0 && i < d->steps; i++) {
		rp_drive_uid(d->opt->run, i, uid);
		if (strpool_intern(m.uids, uid, strlen(uid)) != i)
			rc = err_set(err, ERR_NOMEM, "out of memory");
	}
	if (rc == 0)
		rc = fetch(&m, err);
	for (size_t i = 0; rc == 0 && i < d->steps; i++)
		put_line(&m, i, b);
	if (rc == 0 && !buf_ok(b))
		rc = err_set(err, ERR_NOMEM, "out of memory");
	if (rc == 0)
		d->result.placements_crc32 =
			(uint32_t)crc32_z(0, (const unsigned char *)b->data, b->len);
	strpool_free(m.uids);
	free(m.gpus);
	return rc;
}
