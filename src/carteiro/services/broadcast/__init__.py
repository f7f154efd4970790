"""Broadcasts: a template to everybody in a group of the directory, by whoever leads it."""

from carteiro.services.broadcast.directory import Directory as Directory
from carteiro.services.broadcast.directory import open_directory as open_directory
from carteiro.services.broadcast.post import Posted as Posted
from carteiro.services.broadcast.post import post_broadcast as post_broadcast
from carteiro.services.broadcast.read import BroadcastView as BroadcastView
from carteiro.services.broadcast.read import read_broadcast as read_broadcast
from carteiro.services.broadcast.read import read_recipients as read_recipients
