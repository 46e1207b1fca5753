/* The map page: one HTML document without anything from outside. */
#ifndef TESSERA_EXTENDER_PAGE_H
#define TESSERA_EXTENDER_PAGE_H

extern const char ex_page_html[];

#endif
