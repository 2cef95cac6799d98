"""A client of Viaduck's REST interface. docs/reference/python-client.md lists its methods."""

from viaduck_client.client import Action, Client, Operation, Status
from viaduck_client.errors import ClientError, InvalidAddress, Rejected, Unavailable

__all__ = ["Action", "Client", "ClientError", "InvalidAddress", "Operation", "Rejected", "Status", "Unavailable"]
