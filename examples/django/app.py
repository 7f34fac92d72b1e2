"""Orders that are closed if they are not paid in time. Duetime calls POST /due for each check that is due.

    DUETIME_URL=http://127.0.0.1:3830 WEBHOOK_SECRET=whsec_… PORT=8000 python app.py

The node has a sink `shop` with `url = "http://…:8000/due"` and the same secret; see ../README.md. A project in one
file: what a project of yours has in settings, models and views.
"""

import json
import logging
import os
import sys

import django
from django.conf import settings
from django.core.management import execute_from_command_line
from django.db import connection, models, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from duetime import Duetime, DuetimeError, InvalidSignature, verify

settings.configure(
    ALLOWED_HOSTS=["*"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("SHOP_DB", "shop.db")}},
    DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    ROOT_URLCONF=__name__,
)
django.setup()

TIMEOUT = os.environ.get("ORDER_TIMEOUT", "30m")
# Several, with spaces between them, while one is changed.
SECRETS = os.environ["WEBHOOK_SECRET"].split()
# retry_for: a customer's request waits no longer than this for a node that is away. Threads share the client.
checks = Duetime(os.environ["DUETIME_URL"], token=os.environ.get("DUETIME_TOKEN"), retry_for=3).topic("shop-orders")


class Order(models.Model):
    id = models.TextField(primary_key=True)
    state = models.TextField(default="open")

    class Meta:
        app_label = "shop"

    @classmethod
    def change(cls, order: str, state: str) -> None:
        """Changes an order that is open, and no other: a second call, or a late one, does nothing."""
        cls.objects.filter(id=order, state="open").update(state=state)


def show(order: str) -> HttpResponse:
    found = Order.objects.filter(id=order).first()
    return JsonResponse({"order": order, "state": found.state}) if found else HttpResponse(status=404)


def orders(request: HttpRequest, order: str) -> HttpResponse:
    if request.method == "PUT":
        try:
            # The check first: a check without its order does nothing, an order without a check stays open.
            checks.enqueue({"order": order}, id=order, delay=TIMEOUT)
        except DuetimeError as error:
            return HttpResponse(str(error), status=503)
        Order.objects.get_or_create(id=order)
    return show(order)


def cancel(order: str) -> None:
    try:
        checks.cancel(order)
    except DuetimeError as error:
        # The record is what counts: the check finds the order paid.
        logging.warning("the check of %s is not cancelled: %s", order, error)


@require_POST
def pay(request: HttpRequest, order: str) -> HttpResponse:
    with transaction.atomic():
        Order.change(order, "paid")
        if Order.objects.filter(id=order, state="closed").exists():
            return HttpResponse("the order is closed", status=409)
        # Not before the payment is stored: a transaction that is rolled back must leave the check.
        transaction.on_commit(lambda: cancel(order))
    return show(order)


# Duetime has no CSRF token; its signature says who it is.
@csrf_exempt
@require_POST
def due(request: HttpRequest) -> HttpResponse:
    try:
        verify(request.body, request.headers, SECRETS)
    except InvalidSignature as error:
        return HttpResponse(str(error), status=401)
    Order.change(json.loads(request.body)["order"], "closed")
    return HttpResponse(status=204)


urlpatterns = [path("orders/<order>", orders), path("orders/<order>/payment", pay), path("due", due)]

if __name__ == "__main__":
    if Order._meta.db_table not in connection.introspection.table_names():
        with connection.schema_editor() as schema:
            schema.create_model(Order)
    checks.create(sink={"name": "shop"})
    execute_from_command_line([sys.argv[0], "runserver", "--noreload", f"127.0.0.1:{os.environ.get('PORT', 8000)}"])
