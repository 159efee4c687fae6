"""The conditional U-Net of figure 6: configuration, network and initialisation."""
