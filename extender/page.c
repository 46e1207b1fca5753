#include "extender/page.h"

const char ex_page_html[] = "<!doctype html><title>Tessera</title>";
