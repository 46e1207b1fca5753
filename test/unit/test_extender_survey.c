/* What is said of a cluster that was just loaded. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include "extender/survey.h"
#include "test/lib/extender_fixture.h"

static struct buf said;

static void keep(void *ctx, enum log_level level, const char *line)
{
	(void)level;
	buf_printf(ctx, "%s\n", line);
}

static size_t count(const char *what)
{
	size_t n = 0;

	for (const char *p = buf_str(&said); (p = strstr(p, what)) != NULL; p++)
		n++;
	return n;
}

/* Loads it as --cluster does, and keeps what is logged. */
static void load(const struct buf *cluster)
{
	char path[] = "/tmp/tessera-survey-XXXXXX";
	struct ex_service_config cfg = {.state = ST_CONFIG_DEFAULT};
	struct err err = ERR_INIT;
	struct ex_service *s;
	int fd = mkstemp(path);
	FILE *f = fdopen(fd, "w");

	cr_assert_not_null(f);
	fwrite(cluster->data, 1, cluster->len, f);
	fclose(f);
	cfg.log = log_new(LOG_LEVEL_WARN, keep, &said, NULL, NULL);
	s = ex_service_new(&cfg, &err);
	cr_assert_eq(ex_service_load_file(s, path, &err), 0, "%s", err.msg);
	remove(path);
	ex_service_free(s);
	log_free(cfg.log);
}

static void node(struct buf *b, const char *name, const char *inventory)
{
	buf_printf(b,
		   "%s{\"kind\":\"Node\",\"metadata\":{\"name\":\"%s\",\"annotations\":"
		   "{\"tessera.dev/inventory\":\"%s\"}},\"status\":{\"conditions\":["
		   "{\"type\":\"Ready\",\"status\":\"True\"},"
		   "{\"type\":\"TesseraReady\",\"status\":\"True\"}],"
		   "\"allocatable\":{\"cpu\":\"8\",\"memory\":\"32Gi\",\"pods\":\"110\"}}}",
		   b->data[b->len - 1] == '[' ? "" : ",", name, inventory);
}

#define GPU(uuid)                                                                                  \
	"{\\\"version\\\":1,\\\"driver\\\":\\\"615.71.09\\\",\\\"features\\\":[],\\\"gpus\\\":[{"  \
	"\\\"uuid\\\":\\\"" uuid "\\\",\\\"index\\\":0,\\\"product\\\":\\\"NVIDIA L4\\\","         \
	"\\\"mem_mib\\\":23034,\\\"healthy\\\":true,\\\"foreign\\\":null,\\\"mig\\\":null}]}"

Test(extender_survey, one_gpu_on_two_nodes_and_an_inventory_that_cannot_be_used)
{
	struct buf b = BUF_INIT;

	buf_puts(&b, "{\"kind\":\"List\",\"items\":[");
	node(&b, "n1", GPU("GPU-1"));
	node(&b, "n2", GPU("GPU-2"));
	node(&b, "n3", GPU("GPU-1"));
	node(&b, "n4", "{\\\"version\\\":");
	buf_puts(&b, "]}");
	load(&b);
	cr_expect_eq(count("event=gpu-on-two-nodes"), 1, "%s", buf_str(&said));
	cr_expect_eq(count("gpu=GPU-1 node=n3 other=n1"), 1, "%s", buf_str(&said));
	cr_expect_eq(count("event=node-unready"), 1, "%s", buf_str(&said));
	cr_expect_eq(count("node=n4 reason="), 1, "%s", buf_str(&said));
	cr_expect_eq(count("inventory"), 2, "the reason and the remedy: %s", buf_str(&said));
	buf_fini(&said);
	buf_fini(&b);
}

/* GPUs known from labels have no UUID of their own; a storm of lines helps nobody. */
Test(extender_survey, labels_are_no_duplicates_and_lines_are_few)
{
	struct buf b = BUF_INIT;
	char name[16];

	buf_puts(&b, "{\"kind\":\"List\",\"items\":[");
	for (int i = 0; i < 30; i++) {
		snprintf(name, sizeof(name), "b%d", i);
		node(&b, name, "[]");
	}
	for (int i = 0; i < 2; i++)
		buf_printf(&b,
			   ",{\"kind\":\"Node\",\"metadata\":{\"name\":\"l%d\",\"labels\":{"
			   "\"nvidia.com/gpu.memory\":\"40960\",\"nvidia.com/gpu.count\":\"4\","
			   "\"nvidia.com/gpu.product\":\"NVIDIA-L40\"}},\"status\":{\"conditions\":"
			   "[{\"type\":\"Ready\",\"status\":\"True\"}],\"allocatable\":{\"cpu\":"
			   "\"8\",\"memory\":\"32Gi\",\"pods\":\"110\"}}}",
			   i);
	buf_puts(&b, "]}");
	load(&b);
	cr_expect_eq(count("gpu-on-two-nodes"), 0, "%s", buf_str(&said));
	cr_expect_eq(count("node=b"), 19, "%s", buf_str(&said));
	cr_expect_eq(count("more=11"), 1, "%s", buf_str(&said));
	buf_fini(&said);
	buf_fini(&b);
}
