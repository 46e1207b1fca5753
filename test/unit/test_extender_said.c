/* What the extender's log says of what it loaded and decides. */
#include "test/unit/journal_fixture.h"

#include <pthread.h>

#include "base/file.h"
#include "extender/absent.h"

static struct buf said;
static pthread_mutex_t said_lock = PTHREAD_MUTEX_INITIALIZER;

static void keep(void *ctx, enum log_level level, const char *line)
{
	(void)level;
	pthread_mutex_lock(&said_lock);
	buf_printf(ctx, "%s\n", line);
	pthread_mutex_unlock(&said_lock);
}

static size_t count(const char *what)
{
	size_t n = 0;

	pthread_mutex_lock(&said_lock);
	for (const char *p = said.len > 0 ? buf_str(&said) : ""; (p = strstr(p, what)) != NULL; p++)
		n++;
	pthread_mutex_unlock(&said_lock);
	return n;
}

static struct ex_service_config logged(void)
{
	return (struct ex_service_config){
		.state = ST_CONFIG_DEFAULT,
		.placer = {.learn = true},
		.log = log_new(LOG_LEVEL_DEBUG, keep, &said, NULL, NULL),
	};
}

static void fini(void)
{
	buf_fini(&said);
}

TestSuite(extender_said, .fini = fini);

/* Ten pods would be ten lines: what is wrong is the node. Those that were released are gone, too. */
Test(extender_said, a_node_that_the_journal_knows_alone_is_one_line)
{
	struct ex_service_config cfg = logged();
	struct buf b = BUF_INIT;
	struct err err = ERR_INIT;
	char *cluster = two_nodes(), uid[16];
	struct xf f;

	make_file();
	for (int i = 0; i < 10; i++) {
		snprintf(uid, sizeof(uid), "u%d", i);
		put_bind(&b, uid, false);
	}
	put_release(&b, "u3");
	cr_assert_eq(file_replace(path, b.data, b.len, &err), 0, "%s", err.msg);
	xf_open(&f, cluster, &cfg, path);
	cr_expect_eq(count("event=pod-allocation"), 0, "%s", buf_str(&said));
	cr_expect_eq(count("event=node-missing"), 1, "%s", buf_str(&said));
	cr_expect_eq(count("event=node-missing node=node-1 pods=9 source=journal "), 1, "%s",
		     buf_str(&said));
	ex_service_close_journal(f.s);
	xf_close(&f);
	log_free(cfg.log);
	remove_file();
	free(cluster);
	buf_fini(&b);
}

Test(extender_said, a_node_that_the_cluster_file_lacks_is_one_line)
{
	struct ex_service_config cfg = logged();
	struct buf b = BUF_INIT;
	struct xf f;

	xf_list_begin(&b);
	xf_node(&b, "n1", 2, 40960, "NVIDIA A100-SXM4-40GB", false);
	xf_pod(&b, (struct xf_pod){.uid = "a", .node = "n8"});
	xf_pod(&b, (struct xf_pod){.uid = "b", .node = "n9"});
	xf_pod(&b, (struct xf_pod){.uid = "c", .node = "n8"});
	xf_list_end(&b);
	xf_open(&f, buf_str(&b), &cfg, NULL);
	cr_expect_eq(count("event=pod-allocation"), 0, "%s", buf_str(&said));
	cr_expect_eq(count("event=node-missing node=n8 pods=2 source=cluster-file "), 1, "%s",
		     buf_str(&said));
	cr_expect_eq(count("event=node-missing node=n9 pods=1 source=cluster-file "), 1, "%s",
		     buf_str(&said));
	xf_close(&f);
	log_free(cfg.log);
	buf_fini(&b);
}

Test(extender_said, many_absent_nodes_are_few_lines)
{
	struct log *log = log_new(LOG_LEVEL_WARN, keep, &said, NULL, NULL);
	struct ex_absent *a = NULL;
	char uid[16], node[16];

	ex_absent_drop(&a, "nobody");
	for (int i = 0; i < 60; i++) {
		snprintf(uid, sizeof(uid), "u%d", i);
		snprintf(node, sizeof(node), "n%02d", i / 2);
		cr_assert_eq(ex_absent_put(&a, uid, node, NULL), 0);
	}
	cr_assert_eq(ex_absent_put(&a, "u0", "n01", NULL), 0, "it moved");
	ex_absent_drop(&a, "u1");
	cr_expect_eq(ex_absent_tell(&a, log, "test"), 29);
	cr_expect_null(a);
	cr_expect_eq(count("node=n01 pods=3 "), 1, "%s", buf_str(&said));
	cr_expect_eq(count("node=n"), 19, "%s", buf_str(&said));
	cr_expect_eq(count("more=10 source=test"), 1, "%s", buf_str(&said));
	cr_expect_eq(ex_absent_tell(&a, log, "test"), 0);
	log_free(log);
}

/* What deploy/README.md shows of a pod, before and after, is what happens. */
Test(extender_said, the_example_of_the_manual)
{
	struct ex_service_config cfg = logged();
	struct buf b = BUF_INIT;
	struct err err = ERR_INIT;
	char *manual, *text = NULL, line[1000];
	cJSON *record, *annotations, *v;
	size_t len, shown = 0;
	struct xf f;

	make_file();
	manual = xf_file("deploy/README.md", &len);
	cr_expect_not_null(strstr(manual, "    gpu-memory: \"12288\""));
	xf_list_begin(&b);
	xf_node(&b, "n1", 8, 81559, "NVIDIA H100 80GB HBM3", false);
	xf_list_end(&b);
	cfg.contract.prefix = "nvidia.com/container.";
	xf_open(&f, buf_str(&b), &cfg, path);
	cr_assert_not_null(xf_schedule(&f,
				       (struct xf_pod){.uid = "example",
						       .annotations = "\"gpu-memory\":\"12288\"",
						       .no_comma = true},
				       "n1"));
	ex_service_close_journal(f.s);
	cr_assert_eq(file_read(path, 65536, &text, &len, &err), 0, "%s", err.msg);
	record = cJSON_Parse(text);
	annotations = cJSON_GetObjectItemCaseSensitive(record, "annotations");
	cJSON_ArrayForEach(v, annotations)
	{
		snprintf(line, sizeof(line), "        %s: %s\n", v->string, v->valuestring);
		cr_expect(strstr(manual, line) != NULL, "deploy/README.md lacks%s", line);
		shown++;
	}
	cr_expect_eq(shown, 5, "%s", text);
	cJSON_Delete(record);
	xf_close(&f);
	log_free(cfg.log);
	remove_file();
	free(manual);
	free(text);
	buf_fini(&b);
}

static const char half[] = "\"gpu-fraction\":\"0.5\"";

Test(extender_said, binds_and_refusals)
{
	struct ex_service_config cfg = logged();
	char *cluster = two_nodes(), *reply, *args;
	struct xf_http h;
	struct xf f;
	long status;

	xf_open(&f, cluster, &cfg, NULL);
	xf_http_open(&h, &f, 1 << 20);
	args = xf_args((struct xf_pod){.uid = "u1", .annotations = half, .no_comma = true},
		       "n1 n2");
	reply = xf_http(&h, "/filter", args, strlen(args), NULL, &status);
	cr_expect_eq(status, 200);
	cr_expect_eq(count("event=no-node-passes"), 0, "one passes: %s", buf_str(&said));
	free(args);
	free(reply);
	args = xf_bind_args("u1", "n1");
	reply = xf_http(&h, "/bind", args, strlen(args), NULL, &status);
	cr_expect_eq(status, 200);
	cr_expect_eq(count("level=debug event=bound pod=ns/p-u1 uid=u1 node=n1 gpus=0\n") +
			     count("level=debug event=bound pod=ns/p-u1 uid=u1 node=n1 gpus=1\n"),
		     1, "%s", buf_str(&said));
	free(args);
	free(reply);
	args = xf_args((struct xf_pod){.uid = "u2",
				       .annotations = "\"gpu-memory\":\"999999Mi\"",
				       .no_comma = true},
		       "n1 n2 nowhere");
	reply = xf_http(&h, "/filter", args, strlen(args), NULL, &status);
	cr_expect_eq(status, 200);
	xf_http_close(&h);
	cr_expect_eq(count("level=debug event=no-node-passes pod=ns/p-u2 uid=u2 nodes=3 "), 1, "%s",
		     buf_str(&said));
	free(args);
	free(reply);
	xf_close(&f);
	log_free(cfg.log);
	free(cluster);
}
